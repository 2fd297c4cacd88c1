"""Audits of how exact numbers are worked out: nothing but the numbers may depend on the rows.

What runs is written down step by step, with the type and shape of every array that a function
returns, and compared over tables of all sizes: that is what time and stored bytes can show.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import dpsql
from dpsql.algebra.blocks import Dense
from dpsql.plan.plan import Part, Plan
from dpsql.privacy.doors import look
from dpsql.privacy.noise.samplers import SAMPLERS
from dpsql.workload.cells import cells_of
from dpsql.workload.workload import Product
from tests.audit.checks import matrix
from tests.audit.door import Door, plan_for
from tests.audit.tables import folder
from tests.privacy.looks import World
from tests.support.effort import one_in
from tests.support.seam import zero_noise
from tests.support.symmetric import strategy_of

PACKAGE = str(Path(dpsql.__file__).parent)
FAULTS = str(Path(__file__).with_name("test_mutations.py"))
"""What is planted in place of the package's own is watched as well."""
ROWS = str(Path(PACKAGE) / "privacy" / "vault")
"""Here arrays have an entry for every row."""
Event = tuple[Any, ...]
BITS = 44
"""Tables have up to 2^44 rows."""
BOUNDED = """
[budget]
epsilon = 100000
delta = 1e-6

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
x = {{ type = "number", bounds = [0, 1000000] }}
g = {{ type = "text", domain = ["a", "b", "c"], other = true }}
"""


def footprint(work: Callable[[], object]) -> list[Event]:
    """Return every instruction of the package that runs, and what arrays its functions return."""
    seen: list[Event] = []

    def local(frame: FrameType, event: str, value: object) -> Any:
        if event == "return" and isinstance(value, np.ndarray):
            shape = None if frame.f_code.co_filename.startswith(ROWS) else value.shape
            seen.append((frame.f_code.co_qualname, str(value.dtype), shape))
        elif event == "opcode":
            seen.append((frame.f_code.co_qualname, frame.f_lineno, frame.f_lasti))
        return local

    def trace(frame: FrameType, event: str, value: object) -> Any:
        if not frame.f_code.co_filename.startswith((PACKAGE, FAULTS)):
            return None
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return seen


def sizes() -> Iterator[int]:
    """Numbers of rows around powers of two, and around those at which a sum once turned.

    Where a way turns at a number of rows, all above it differ from the first: a power in eight is
    asked, and the last.
    """
    yield from (0, 42, 43, 1065, 1066)
    for bits in range(BITS - 1, 0, -one_in(8)):
        yield from (2**bits - 1, 2**bits, 2**bits + 1)


def same(runs: Sequence[tuple[int, list[Event]]]) -> None:
    """Assert that all runs left the same footprint."""
    (_, first), *rest = runs
    for rows, found in rest:
        pair = next((p for p in itertools.zip_longest(first, found) if p[0] != p[1]), None)
        assert pair is None, (rows, pair)


def plans() -> dict[str, Plan]:
    """Plans whose rows are short, long, and so long that they pass int64; and orbits of cells."""
    long = matrix() * 2**20
    small: dict[str, NDArray[np.int64] | int] = {"a": matrix(), "b": 2}
    other = np.array([[2**20, 1], [3, 2**20]])
    tiny = Fraction(1, 10**6)
    return {
        "short": plan_for("laplace", small, Fraction(1)),
        "long": plan_for("laplace", {"a": long}, tiny),
        "gaussian": plan_for("gaussian", small, tiny),
        "too long": plan_for("laplace", {"a": long * 2**10, "b": other}, tiny),
        "wide noise": plan_for("laplace", small, Fraction(1, 10**17)),
        "orbits": _orbits(1),
        "long orbits": _orbits(2**14),
    }


def _orbits(times: int) -> Plan:
    strategy = strategy_of("mixed")
    block, own = strategy.block, strategy.block.integer_rows
    parts = tuple(replace(part, rows=part.rows * times) for part in own.parts)
    strategy = replace(strategy, blocks=(replace(block, orbit_rows=replace(own, parts=parts)),))
    resolutions = {name: cells_of(name, np.arange(n)) for name, n in strategy.domain.items()}
    part = Part("t", strategy, resolutions, Fraction(1), 1)
    return Plan((part,), "gaussian", Fraction(1), Fraction(1, 10**9), Fraction(1))


def door(plan: Plan, rows: int) -> Door:
    """Return the door on a table with all rows in one cell but for one."""
    shape = [each.size for each in plan.parts[0].resolutions.values()]
    counts = np.zeros(shape, dtype=np.int64)
    counts.flat[-1], counts.flat[0] = max(rows - 1, 0), min(rows, 1)
    return Door(plan, counts)


def measurements(name: str, backend: str = "dpsql") -> None:
    """Measure one plan on tables of all sizes."""
    plan, runs = plans()[name], []
    with zero_noise():
        for rows in (0, *sizes()):  # the first run completes classes (``dpsql.records``)
            opened = door(plan, rows)
            opened.backend = backend
            receipt = opened.receipt()
            runs.append((rows, footprint(lambda o=opened, r=receipt: o.measured(r))))  # type: ignore[misc]
    same(runs[1:])


def looks() -> None:
    """Measure and score candidates on tables of all sizes; what a draw takes is its own matter."""
    runs: list[tuple[int, list[Event]]] = []
    chosen: list[Any] = []

    def choose(bits: object, scores: NDArray[Any], *_: object) -> list[int]:
        chosen.append(scores.dtype)
        return [0]

    row = np.array([[2**10, 1, 0], [1, 2**9, 3]])
    candidates = [(Product({"a": Dense(row)}),), (Product({"a": Dense(row[::-1])}),)]
    candidates += [(Product({"a": Dense(row), "b": Dense(np.array([[1, 1]]))}),)]
    zeros = [np.zeros(2)] * len(candidates)
    draws = {"laplace": lambda bits, scale, size: np.zeros(size, dtype=np.int64)}
    with mock.patch.dict(SAMPLERS, draws), mock.patch.object(look, "top_choices", choose):
        for rows in (0, *sizes()):  # the first run is where operators work out their constants
            counts = np.zeros((3, 2), dtype=np.int64)
            counts[0, 0], counts[2, 1] = rows, 1
            handle = World({"a": 3, "b": 2}, counts).opened(10)

            def work(handle: Any = handle) -> None:
                handle.measure(candidates, Fraction(1))
                handle.select(candidates, zeros, amount=Fraction(1))

            runs.append((rows, footprint(work)))
    same(runs[1:])
    assert len(set(chosen)) == 1, set(chosen)


def statements(place: Path) -> None:
    """Ask tables with one row more, and compare what ran from the charge to the stored bytes."""
    sql = "SELECT g, SUM(x), AVG(x), COUNT(*) FROM t GROUP BY g"
    for n in (41, 1065):
        runs: list[tuple[int, list[Event]]] = []
        codec = []
        for turn, rows in enumerate((n, n, n + 1)):  # the first run completes classes
            here = folder(place / f"{rows} {turn}", [("w", 999_999.0, "a")] * rows, catalog=BOUNDED)
            codec.append(_stored(here, sql, runs, rows))
        same(runs[1:])
        assert codec[1] == codec[2]


def _stored(catalog: Path, sql: str, runs: list[tuple[int, list[Event]]], rows: int) -> list[Event]:
    """Ask, note what ran at the door, and return the types and shapes of what was stored."""
    from dpsql.answer import codec
    from dpsql.privacy.doors import measure

    kept: list[Event] = []
    real, zipped = measure._measure_part, codec.zipped

    def watched(*arguments: Any) -> Any:
        found: list[Any] = []
        runs.append((rows, footprint(lambda: found.append(real(*arguments)))))
        return found[0]

    def noted(arrays: dict[str, NDArray[Any]]) -> bytes:
        kept.extend((k, str(v.dtype), v.shape) for k, v in arrays.items() if k != "facts")
        return zipped(arrays)

    with (
        zero_noise(),
        mock.patch.object(measure, "_measure_part", watched),
        mock.patch.object(codec, "zipped", noted),
        dpsql.connect(catalog) as connection,
    ):
        connection.execute("SET epsilon = 1e-6")
        connection.execute(sql).fetchall()
    assert kept
    return kept


def clock(rows: tuple[int, int] = (1023, 2**42), runs: int = 7) -> None:
    """Time two sizes of one table by turns; the quickest runs are alike but for a factor of 3."""
    side = 128
    plan = plan_for("laplace", {"a": np.full((side, side), 2**20), "b": side}, Fraction(1))
    best = [float("inf")] * 2
    with zero_noise():
        for _, (i, count) in itertools.product(range(runs), enumerate(rows)):
            opened = door(plan, count)
            receipt = opened.receipt()
            start = time.perf_counter()
            opened.measured(receipt)
            best[i] = min(best[i], time.perf_counter() - start)
    assert max(best) < 3 * min(best), best
