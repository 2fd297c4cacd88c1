"""``python -m dpsql`` and the ``dpsql`` command."""

from __future__ import annotations

import signal
import sys

from dpsql.ui.cli import run_command_line


def main() -> None:
    """Run the command line and exit with its documented status.

    A request to terminate unwinds the stack, so that nothing half written stays behind.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
