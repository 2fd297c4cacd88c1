"""Run every benchmark, each in a process of its own."""

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
)


def main() -> int:
    """Run the programs in order; return the worst exit code."""
    codes = []
    for program in PROGRAMS:
        print(f"\n== python -m benchmarks.{program}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"benchmarks.{program}"]).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
