"""Time and memory while one thing grows: statements, cells of a column, columns, rows, persons.

Every size runs in a process of its own, after its files are written: CPU seconds after imports, of
the process and of those it starts, seconds on the clock, and the most memory it held. Exponents are
those of a power law through the sizes that take long enough to tell; in memory, what is held above
the smallest size counts. One above ``LINEAR`` that has no reason is a failure, exit code 1. Every
size runs once more where no value of its files is declared: more than ``DECLARED`` times as long is
a failure, too. Where DuckDB has a statement for the same work, the last line is the ratio to it at
the largest size, in the same run; more than the part's goal is a failure.
Run: ``python -m benchmarks.growth [part ...] [--quick]``; ``--quick`` leaves the largest sizes out.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

import dpsql
from benchmarks import growing, growing_marginals, growing_statements
from benchmarks.growing import Growing, undeclare

PARTS = {**growing.PARTS, **growing_marginals.PARTS, **growing_statements.PARTS}
"""What can grow, by name."""

LINEAR = 1.1
"""The largest exponent that is no failure."""

DECLARED = 2.0
"""Times as long as it may take where none of the values are declared."""

SECONDS, MEBIBYTES = 0.3, 30.0
"""What a size must take, or hold above the smallest, to count for an exponent."""

LIMIT = 1800
"""Seconds after which a size is given up."""


@dataclass(frozen=True, slots=True)
class Taken:
    """CPU seconds, seconds on the clock, and peak MiB of one size."""

    size: int
    seconds: float
    mebibytes: float
    wall: float = 0.0


def main(arguments: Sequence[str]) -> int:
    """Print a table for every part that is named, all by default; return 1 where one fails."""
    if arguments[:1] == ["--one"]:
        print(json.dumps(measure(PARTS[arguments[1]], int(arguments[2]), Path(arguments[3]))))
        return 0
    if arguments[:1] == ["--beside"]:
        print(json.dumps(measure_beside(PARTS[arguments[1]], Path(arguments[3]))))
        return 0
    names = [name for name in arguments if name != "--quick"] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no part {unknown[0]!r}; parts: {', '.join(PARTS)}")
        return 2
    return max([report(name, "--quick" in arguments) for name in names])


def measure(part: Growing, size: int, folder: Path) -> tuple[float, float, float]:
    """CPU seconds, peak MiB and seconds on the clock of one size, in this process."""
    for kind in ("STATE", "CACHE", "DATA"):
        os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
    os.environ["DPSQL_CACHE"] = "off"
    wall, start = time.perf_counter(), cpu()
    with dpsql.connect(folder / "c.toml", epsilon=1) as connection:
        part.work(connection, size)
    return cpu() - start, peak(), time.perf_counter() - wall


def measure_beside(part: Growing, folder: Path) -> tuple[float, float, float]:
    """The same of DuckDB's own statement over the same files."""
    os.chdir(folder)
    wall, start = time.perf_counter(), cpu()
    with duckdb.connect() as own:
        own.execute("SET enable_progress_bar = false")
        own.execute("" if part.beside is None else part.beside[0])
    return cpu() - start, peak(), time.perf_counter() - wall


def cpu() -> float:
    """The CPU seconds of this process so far, and of those that it has started and that ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def peak() -> float:
    """The most memory that this process held, in MiB.

    ``getrusage`` would count what the process that started this one held.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def report(name: str, is_quick: bool) -> int:
    """Print what one part takes, and its exponents; return 1 where it fails."""
    part = PARTS[name]
    heads = ("CPU s", "wall s", "MiB", "none", "ratio")
    print(f"\n{name:<12} " + " ".join(f"{each:>8}" for each in heads), flush=True)
    found, is_slow = [], False
    for size in (*part.sizes, *(() if is_quick else part.long)):
        taken, bare = alone(name, size), alone(name, size, undeclare)
        if taken is None or bare is None:
            print(f"{size:>12,} not done in {LIMIT} s, or killed", flush=True)
            return 1
        found.append(taken)
        ratio = bare.seconds / taken.seconds
        is_slow |= ratio > DECLARED and bare.seconds >= SECONDS
        times = f"{taken.seconds:>8.2f} {taken.wall:>8.2f} {taken.mebibytes:>8.0f}"
        print(f"{size:>12,} {times} {bare.seconds:>8.2f} {ratio:>8.2f}", flush=True)
    powers = {"time": of_time(found), "memory": of_memory(found)}
    for what, power in powers.items():
        print(f"  exponent of {what}: {'too little to tell' if power is None else f'{power:.2f}'}")
    steep = [what for what, power in powers.items() if power is not None and power > LINEAR]
    if steep:
        print(f"  {' and '.join(steep)} ABOVE {LINEAR}: {part.why or 'a failure'}", flush=True)
    if is_slow:
        print(
            f"  more than {DECLARED:g} times as long where none is declared: a failure", flush=True
        )
    return int((bool(steep) and not part.why) or is_slow or _is_slower(name, found[-1]))


def _is_slower(name: str, taken: Taken) -> bool:
    """Print the ratio to DuckDB's own statement at a size; say whether it is above the goal."""
    beside = PARTS[name].beside
    if beside is None:
        return False
    own, (_, most) = alone(name, taken.size, how="--beside"), beside
    if own is None:
        return True
    ratio = taken.seconds / own.seconds
    print(
        f"  DuckDB's own at {own.size:,}: {own.seconds:.2f} s, {own.mebibytes:.0f} MiB; {ratio:.2f}"
    )
    return ratio > most


def alone(
    name: str, size: int, change: Callable[[Path], None] = lambda _: None, how: str = "--one"
) -> Taken | None:
    """Time and memory of one size in a process of its own; None where it does not end well.

    ``change`` is done to its files, once they are written; ``how`` says who does the work.
    """
    with tempfile.TemporaryDirectory() as folder:
        PARTS[name].prepare(Path(folder), size)
        change(Path(folder))
        PARTS[name].before(Path(folder))
        command = [sys.executable, "-m", "benchmarks.growth", how, name, str(size), folder]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT, check=True
            )
        except subprocess.TimeoutExpired:
            return None
        except subprocess.CalledProcessError as error:
            print(error.stderr[-1000:])
            return None
    seconds, mebibytes, wall = json.loads(done.stdout)
    return Taken(size, seconds, mebibytes, wall)


def of_time(found: Sequence[Taken]) -> float | None:
    """The exponent of time over the sizes that take long enough."""
    return exponent([(each.size, each.seconds) for each in found if each.seconds >= SECONDS])


def of_memory(found: Sequence[Taken]) -> float | None:
    """The exponent of memory above that of the smallest size."""
    above = [(each.size, each.mebibytes - found[0].mebibytes) for each in found]
    return exponent([(size, more) for size, more in above if more >= MEBIBYTES])


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The exponent of a power law through points, None without two.

    >>> round(exponent([(1, 2.0), (10, 20.0), (100, 200.0)]), 6)
    1.0
    """
    if len(points) < 2:
        return None
    logs = np.log(np.array(points))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
