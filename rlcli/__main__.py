"""``python -m rlcli`` is ``rlcli``."""

from rlcli.cli.main import main

raise SystemExit(main())
