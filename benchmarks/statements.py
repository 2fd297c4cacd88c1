"""Statements that others wrote, answered without noise that matters and compared with DuckDB's.

Prints for every suite of ``tests/suites`` how many are accepted, equal, wrong, and why others are
refused. Those that ask for rows as they are (marked ``-- beyond:`` there, with the reason) are told
apart: the share is of the others. Run: ``OMP_NUM_THREADS=1 python -m benchmarks.statements
[SUITE ...]``; ``tpch:0.1`` is a suite at a scale of its own.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.suites.suite import HERE, counted, open_suite, outcomes, read_suite
from tests.support.seam import zero_noise

SUITES = ("ssb", "tpch", "job_light", "strangers", "analysts", "reports", "weekly")


def main(names: list[str]) -> None:
    """Print a line for each suite, and what its refusals are."""
    heads = ("asked", "beyond", "accepted", "equal", "wrong", "CPU s")
    print(f"{'':12} {' '.join(f'{head:>8}' for head in heads)}")
    reasons: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    for name in names or SUITES:
        start = time.process_time()
        name, _, scale = name.partition(":")
        suite = read_suite(HERE / f"{name}.sql")
        with (
            tempfile.TemporaryDirectory() as folder,
            open_suite(Path(folder), name, scale) as world,
            zero_noise(),
        ):
            found = list(outcomes(world, suite))
        count = counted(found)
        accepted = count["equal"] + count["wrong"]
        spent = time.process_time() - start
        asked_for = len(suite) - sum(each.beyond is not None for each in suite)
        print(
            f"{name:12} {len(suite):8} {len(suite) - asked_for:8} {accepted / asked_for:8.1%} "
            f"{count['equal']:8} {count['wrong']:8} {spent:8.1f}",
            flush=True,
        )
        for asked, outcome, details in found:
            if outcome == "wrong":
                print(f"  wrong: {asked.name}: {details[:200]}")
            elif asked.beyond is not None:
                beyond[asked.beyond.partition(" ")[2]] += 1
            elif outcome != "equal":
                reasons[details.splitlines()[0]] += 1
    for title, told in (("refused:", reasons), ("beyond differential privacy:", beyond)):
        print(f"\n{title}")
        for reason, times in told.most_common():
            print(f"{times:4}  {reason[:110]}")


if __name__ == "__main__":
    main(sys.argv[1:])
