"""The program ``rlcli``: takes the verb and calls what does it. Loads nothing that the verb does not need."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        argv: The words after the program's name; None: those of this process.

    Returns:
        The exit code: 0 done, 1 the run failed, 2 the request cannot be met, 3 stopped by SIGTERM, 130 by SIGINT.
    """
    try:
        code = _do(list(sys.argv[1:] if argv is None else argv))
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
