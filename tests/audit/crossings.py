"""Random statements over tables of one unit, asked of the tables with and without each unit.

Every number that is measured for the whole tables is handed out again where a unit is left out, so
that whatever else a session shows must be the same, and so that later statements see the same
answers. What was counted differs by no more than the noise is for, over all of a request.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

from numpy.typing import NDArray

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.doors import measure
from tests.audit.crossing_statements import CATALOG, Data, draw_statement, tables_of, without
from tests.support.tables import write_tables

Measured = list[tuple[NDArray[Any], Fraction, str]]


@dataclass
class Told:
    """All that a session shows of one statement, and what was measured for it."""

    shown: Any
    paid: tuple[Fraction, Fraction]
    measured: Measured


@contextmanager
def session(place: Path, data: Data) -> Iterator[tuple[Connection, Any]]:
    """A session over such tables: its lots are drawn as in every other."""
    with ExitStack() as stack:
        database = stack.enter_context(write_tables(place, CATALOG, tables_of(data)))
        state = {"XDG_STATE_HOME": str(place / "state")}
        stack.enter_context(mock.patch.dict(os.environ, state))
        stack.enter_context(mock.patch.object(Ledger, "salt", bytes(32)))
        yield stack.enter_context(dpsql.connect(place / "t.toml", epsilon=1)), database


def told(
    connection: Connection, script: Sequence[tuple[str, str]], known: list[Told] | None = None
) -> list[Told]:
    """What a script shows; its numbers are those that are known, or exact ones."""
    found: list[Told] = []
    for place, (how, sql) in enumerate(script):
        measured: Measured = []
        same = None if known is None else known[place].measured

        def note(exact: Any, noise: str, scale: Fraction, wide: bool) -> Any:
            measured.append((exact.astype(object), scale, noise))  # noqa: B023
            if same is None:  # noqa: B023
                return exact
            taken = same[len(measured) - 1][0]  # noqa: B023
            return taken.astype(exact.dtype)

        entries = len(list(connection.entries()))
        with mock.patch.object(measure, "_add_noise", note), warnings.catch_warnings(record=True):
            shown = _shown(connection, how, sql)
        new = list(connection.entries())[entries:]
        epsilon = sum((Fraction(each.epsilon or 0) for each in new), Fraction(0))
        rho = sum((Fraction(getattr(each, "rho", 0) or 0) for each in new), Fraction(0))
        found.append(Told((shown, [each.state for each in new]), (epsilon, rho), measured))
    return found


def _shown(connection: Connection, how: str, sql: str) -> Any:
    try:
        if how == "SET":
            connection.execute(sql)
            return None
        if how == "EXPLAIN":
            return str(connection.explain(sql))
        cursor = connection.execute(sql)
        result = cursor.result
        return [repr(row) for row in result.rows], result.notes, repr(result.stddev)
    except dpsql.Error as error:
        return f"{type(error).__name__} {error}"


def breach(one: Told, two: Told) -> str | None:
    """What is wrong between two worlds that differ by a unit, if anything."""
    if one.shown != two.shown:
        return f"shown: {one.shown}\n  other: {two.shown}"
    if one.paid != two.paid:
        return f"paid: {one.paid} and {two.paid}"
    if [(len(v), s, n) for v, s, n in one.measured] != [(len(v), s, n) for v, s, n in two.measured]:
        return "other measurements"
    spent, rho = Fraction(0), Fraction(0)
    for (exact, scale, noise), (other, _, _) in zip(one.measured, two.measured, strict=True):
        change = [abs(int(x)) for x in exact - other]
        if noise == "laplace":
            spent += sum(change) / scale
        else:
            rho += sum(x * x for x in change) / (2 * scale)
    if spent > one.paid[0] or rho > one.paid[1]:
        return f"moved by {float(spent)} and {float(rho)}; paid {[float(x) for x in one.paid]}"
    return None


def draw_script(draw: random.Random, length: int) -> list[tuple[str, str]]:
    """Statements, some asked twice or with EXPLAIN, and settings."""
    script = [("SET", f"SET epsilon = {draw.choice([1, 1, 2000])}")]
    if draw.random() < 0.3:
        script += [("SET", "SET delta = 1e-6"), ("SET", "SET noise = gaussian")]
    if draw.random() < 0.85:
        script += [("SET", "SET mechanism = identity")]
    for _ in range(length):
        if draw.random() < 0.06:
            asked = [("IN", draw_statement(draw)) for _ in range(draw.choice([2, 3]))]
            script += [("WHOLE", "BEGIN WORKLOAD"), *asked, ("WHOLE", "RUN WORKLOAD")]
        sql = draw_statement(draw)
        how = draw.choice(["ASK"] * 8 + ["EXPLAIN"])
        script.append((how, sql))
        if draw.random() < 0.1:
            script.append(draw.choice([each for each in script if each[0] == "ASK"] or script[:1]))
    return script


def answered(
    script: Sequence[tuple[str, str]], whole: Sequence[Told], draw: random.Random
) -> tuple[list[tuple[str, str]], list[Told]]:
    """A script and what it shows, without most of what is refused anyway."""
    kept = [
        (step, each)
        for step, each in zip(script, whole, strict=True)
        if step[0] not in ("ASK", "EXPLAIN")
        or not isinstance(each.shown[0], str)
        or step[0] == "EXPLAIN"
        or draw.random() < 0.1
    ]
    return [step for step, _ in kept], [each for _, each in kept]


def breaches(
    place: Path, data: Data, script: Sequence[tuple[str, str]], draw: random.Random
) -> Iterator[str]:
    """What is wrong with a script over such tables, for each unit and for one that nobody is."""
    with session(place / "whole", data) as (connection, _):
        script, whole = answered(script, told(connection, script), draw)
    owned = [row[0] for name in ("people", "sales", "visits") for row in data[name]]
    for unit in sorted({each for each in owned if each is not None}):
        with session(place / str(unit), without(data, unit)) as (connection, _):
            rest = told(connection, script, whole)
        for step, one, two in zip(script, whole, rest, strict=True):
            found = breach(one, two)
            if found is not None:
                yield f"without {unit}: {step[1]}\n{found}"
