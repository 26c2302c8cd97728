"""The program ``rlcli``: takes the verb and calls what does it. Loads nothing that the verb does not need."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        argv: The words after the program's name; None: those of this process.

    Returns:
        The exit code: 0 done, 1 the run failed, 2 the request cannot be met, 3 stopped by SIGTERM, 130 by SIGINT.
    """
    from rlcli.cli import helptext

    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else "--help"
    if verb in ("-h", "--help", "help"):
        print(helptext.main())
        return 0
    if verb == "--version":
        print(helptext.version())
        return 0
    if verb == "train":
        from rlcli.cli import train

        return train.command(words[1:])
    if verb == "list":
        from rlcli.cli import listing

        return listing.command(words[1:])
    return _unknown(verb)


def _unknown(verb: str) -> int:
    from rlcli.cli import helptext
    from rlcli.core.errors import did_you_mean

    hint = did_you_mean(verb, helptext.VERBS) or f"; there are: {', '.join(helptext.VERBS)} (rlcli --help)"
    if "=" in verb or verb.startswith("-"):
        hint = "; the verb comes first: rlcli train ..."
    print(f"rlcli: unknown verb {verb!r}{hint}", file=sys.stderr)
    return 2
