"""Run every benchmark, each in a process of its own; a table against the peers comes last."""

from __future__ import annotations

import subprocess
import sys

PROGRAMS = (
    "first_light",
    "noise",
    "speed",
    "front",
    "sums",
    "adaptive",
    "accuracy",
    "keys",
    "engines",
    "growth --quick",
    "reads",
    "peers",
)


def main() -> int:
    """Run the programs in order; return the worst exit code."""
    codes = []
    for program in PROGRAMS:
        print(f"\n== python -m benchmarks.{program}", flush=True)
        command = [sys.executable, "-m", *f"benchmarks.{program}".split()]
        codes.append(subprocess.run(command).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
