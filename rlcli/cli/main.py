"""The program ``rlcli``: takes the verb and calls what does it. Loads nothing that the verb does not need."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

_MODULES = {
    "train": "rlcli.cli.train",
    "resume": "rlcli.cli.resume",
    "verify": "rlcli.cli.verify",
    "eval": "rlcli.cli.evaluate",
    "play": "rlcli.cli.play",
    "export": "rlcli.cli.export",
    "list": "rlcli.cli.listing",
}
"""Verb -> the module whose ``command(words)`` does it and gives the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        argv: The words after the program's name; None: those of this process.

    Returns:
        The exit code: 0 done, 1 the run failed, 2 the request cannot be met, 3 stopped by SIGTERM, SIGUSR1 or the time
        limit, 130 by SIGINT.
    """
    if argv is None:
        from rlcli.core.stop import whole_program

        with whole_program():
            return main(sys.argv[1:])
    try:
        code = _do(list(argv))
    except BrokenPipeError:  # as in `rlcli list | head`: whoever reads has seen enough
        code = 0
    _flush()
    return code


def _flush() -> None:
    """Write out what is buffered; to nowhere if nobody reads it, since Python would try again at exit and complain."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _do(words: list[str]) -> int:
    from rlcli.cli import helptext

    verb = words[0] if words else "--help"
    if verb in ("-h", "--help", "help"):
        print(helptext.main())
        return 0
    if verb == "--version":
        print(helptext.version())
        return 0
    if verb not in _MODULES:
        return _unknown(verb)
    code: int = importlib.import_module(_MODULES[verb]).command(words[1:])
    return code


def _unknown(verb: str) -> int:
    from rlcli.cli import helptext
    from rlcli.core.errors import did_you_mean

    hint = did_you_mean(verb, helptext.VERBS) or f"; there are: {', '.join(helptext.VERBS)} (rlcli --help)"
    if "=" in verb or verb.startswith("-"):
        hint = "; the verb comes first: rlcli train ..."
    print(f"rlcli: unknown verb {verb!r}{hint}", file=sys.stderr)
    return 2
