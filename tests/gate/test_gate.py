"""What statements compile to is what is recorded of them, and each way to differ is told apart."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.algebra.operator import Operator
from dpsql.answer.result import Result
from tests.gate.answers import TooSlow, alike, answered, is_worse, patience, sketch
from tests.gate.digest import _operator, plain
from tests.gate.record import FREE, Change, Line, differences, key_of, opened, read_record
from tests.gate.worlds import worlds
from tests.support.effort import SHIFT, one_in

SMALL = "ssb"
"""A world of few statements, all of which are accepted."""


def test_a_tenth_of_the_statements_compiles_to_what_is_recorded() -> None:
    found = [
        each
        for each in differences(read_record(), every=one_in(10), seed=SHIFT)
        if each.change not in FREE
    ]
    said = "\n".join(map(str, found))
    assert not found, f"look at each, then python -m tests.gate write:\n{said}"


def test_nearly_every_statement_has_a_line() -> None:
    asked = [key_of(world.name, sql) for world in worlds() for sql in world.asked]
    record = read_record()
    assert len(set(asked)) == len(asked) > 4_000
    apart = len(set(asked) ^ record.keys())  # pages and suites gain examples, and lose them
    assert apart < len(asked) / 40, "python -m tests.gate write"


def test_each_way_to_differ_is_told_apart() -> None:
    record = read_record()
    (world,) = (each for each in worlds() if each.name == SMALL)
    changes: dict[str, Change] = {}
    for sql, change in zip(world.asked, [*_PLANTED] * 2, strict=False):
        line = record[key_of(SMALL, sql)]
        record[line.key] = _PLANTED[change](line)
        changes[sql] = change
    found = {each.sql: each.change for each in differences(record, names=[SMALL])}
    assert found == {sql: change for sql, change in changes.items() if change is not Change.SAME}
    assert set(changes.values()) == set(_PLANTED)


def _shown(line: Line) -> Line:
    return replace(line, verdict=f"{line.verdict[:-6]}000000")


_PLANTED: dict[Change, Callable[[Line], Line]] = {
    Change.SAME: lambda line: line,
    Change.SHOWN: _shown,
    Change.MOVED: lambda line: replace(line, verdict="0.0.0"),
    Change.WORSE: lambda line: replace(_shown(line), forecast=_halved(line.forecast)),
    Change.OTHER: lambda line: replace(_shown(line), answer=f"1{line.answer}"),
    Change.GAINED: lambda line: replace(line, verdict="E_PARSE 1:1"),
}
"""What a record would say where a statement differs so."""


def _halved(forecast: str) -> str:
    return " ".join(each if each == "-" else str(float(each) / 2) for each in forecast.split(" "))


def test_what_is_refused_now_is_lost_and_a_caret_elsewhere_is_told() -> None:
    record = read_record()
    (world,) = (each for each in worlds() if each.name == "demo/rand_hie")
    for sql in world.asked:
        key = key_of(world.name, sql)
        record[key] = replace(record[key], verdict="E_PARSE 1:1")
    assert {each.change for each in differences(record, names=[world.name])} == {Change.GAINED}
    for world in worlds():
        for sql in world.asked if world.name == "grammar" else ():
            line = record[key_of(world.name, sql)]
            if not line.is_accepted:
                record[line.key] = replace(line, verdict=f"{line.verdict.split()[0]} 99:1")
    found = {each.change for each in differences(record, every=20, names=["grammar"], seed=1)}
    assert found == {Change.REFUSED}


@pytest.mark.parametrize("other", [Dense(np.eye(5, dtype=np.int64))])
def test_a_matrix_has_one_digest_whatever_it_is_written_as(other: Operator) -> None:
    assert _operator(Identity(5), {}) == _operator(other, {})
    assert _operator(Prefix(5), {}) != _operator(other, {})
    assert _operator(Dense(np.eye(5) / 3), {}) != _operator(other, {})


def test_values_have_one_text_whatever_library_they_are_of() -> None:
    assert plain([np.int64(3), np.float64(0.1) + 0.2, np.str_("x")]) == plain((3, 0.3, "x"))


def _result(rows: list[tuple[str, float]], error: float | None = 1.0) -> Result:
    errors = (None, None if error is None else tuple(error for _ in rows))
    return Result.of_rows(("k", "n"), ("text", "number"), tuple(rows), errors, "")


def test_a_sketch_sees_numbers_change_places_and_no_order() -> None:
    one, two = _result([("a", 1.0), ("b", 2.0)]), _result([("a", 2.0), ("b", 1.0)])
    again = _result([("b", 2.0 + 1e-12), ("a", 1.0)])
    assert not alike(sketch(one), sketch(two))
    assert alike(sketch(one), sketch(again))
    assert not alike(sketch(one), sketch(_result([("a", 1.0), ("c", 2.0)])))
    assert not alike(sketch(one), sketch(_result([("a", 1.0)])))


def test_errors_are_worse_where_they_are_larger_or_gone() -> None:
    assert is_worse("1 2", "1 2.1")
    assert is_worse("1 2", "1 -")
    assert not is_worse("1 2", "0.5 2.0000001")
    assert not is_worse("- 2", "1 2")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files left open
def test_what_is_interrupted_for_its_time_leaves_the_world_as_it_is() -> None:
    (world,) = (each for each in worlds() if each.name == "demo/rand_hie")
    with opened(world) as connections:
        sql = world.asked[0]
        known = answered(connections, sql)
        connections[0].set("reuse", "never")
        late = 0
        for seconds in (0.001, 0.002, 0.004, 0.008, 0.016, 0.032):
            with suppress(TooSlow), patience(seconds):
                connections[0].execute(sql)
                late -= 1
            late += 1
        assert late
        assert answered(connections, sql) == known
