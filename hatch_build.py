"""Puts conf/ inside real wheels as rlcli/conf; an editable install reads conf/ in place."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConfHook(BuildHookInterface):
    """Hatchling build hook."""

    def initialize(self, version: str, build_data: dict) -> None:
        """Add conf/ to the wheel, but not to an editable one."""
        if version == "standard":
            build_data["force_include"]["conf"] = "rlcli/conf"
