"""``python -m dpsql`` and the ``dpsql`` command."""

from __future__ import annotations

import sys

from dpsql.ui.cli import run_command_line


def main() -> None:
    """Run the command line and exit with its documented status."""
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
