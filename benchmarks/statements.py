"""Statements that others wrote, answered without noise that matters and compared with DuckDB's.

Prints for every suite of ``tests/suites`` how many are accepted, equal, wrong, and why others are
refused. Run: ``OMP_NUM_THREADS=1 python -m benchmarks.statements [SUITE ...]``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.suites.suite import HERE, counted, open_suite, outcomes, read_suite
from tests.support.seam import zero_noise

SUITES = ("ssb", "tpch", "job_light", "strangers")


def main(names: list[str]) -> None:
    """Print a line for each suite, and what its refusals are."""
    print(f"{'':12} {'asked':>6} {'accepted':>9} {'equal':>6} {'wrong':>6} {'CPU s':>6}")
    reasons: Counter[str] = Counter()
    for name in names or SUITES:
        start = time.process_time()
        suite = read_suite(HERE / f"{name}.sql")
        with (
            tempfile.TemporaryDirectory() as folder,
            open_suite(Path(folder), name) as world,
            zero_noise(),
        ):
            found = list(outcomes(world, suite))
        count = counted(found)
        accepted = count["equal"] + count["wrong"]
        spent = time.process_time() - start
        print(
            f"{name:12} {len(suite):6} {accepted / len(suite):9.0%} {count['equal']:6} "
            f"{count['wrong']:6} {spent:6.1f}",
            flush=True,
        )
        for asked, outcome, details in found:
            if outcome == "wrong":
                print(f"  wrong: {asked.name}: {details[:200]}")
            elif outcome != "equal":
                reasons[details.splitlines()[0]] += 1
    print("\nrefused:")
    for reason, times in reasons.most_common():
        print(f"{times:4}  {reason[:110]}")


if __name__ == "__main__":
    main(sys.argv[1:])
