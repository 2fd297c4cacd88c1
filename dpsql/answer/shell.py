"""Run the outer shell of a statement over its noisy cells: pure post-processing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.answer.clipped import number_text
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.records import dataclass, replace
from dpsql.sealed import PATIENT, SealedConnection
from dpsql.sql.compiled import Compiled, Select, cell_kinds
from dpsql.sql.query import Output
from dpsql.strategy.noise_law import law
from dpsql.vectors import Vector, repeated

if TYPE_CHECKING:
    from dpsql.answer.covariance import StatementNumbers

Covariances = Mapping[tuple[int, int], Floats]

_TYPES = {
    "BOOLEAN": "boolean",
    "VARCHAR": "text",
    "JSON": "text",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIME": "time",
    "DOUBLE": "number",
    "FLOAT": "number",
}
UNKNOWN = "the standard error of {} is not worked out"
"""The note of columns with a number whose error is not told."""


@dataclass(frozen=True, slots=True)
class NoisySelect:
    """The noisy numbers of a select: a column per aggregate, a covariance per pair (i <= j).

    Each has one entry per result row in declared order.
    """

    answers: tuple[Vector, ...]
    covariances: Covariances


@dataclass(frozen=True, slots=True)
class _Parts:
    """The columns of a result, the standard errors and the type of each, and slopes."""

    columns: tuple[Vector, ...]
    errors: tuple[Vector | None, ...]
    types: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    slopes: tuple[Vector, ...] = ()


def build_result(
    item: Compiled,
    filled: Sequence[NoisySelect],
    cost: CostInfo | None,
    receipt: ReceiptInfo | None,
    sealed: SealedConnection,
    joint: StatementNumbers | None = None,
) -> Result:
    """Project, filter, order and put together the cells of one statement: estimates, not rounded.

    Args:
        filled: the noisy numbers of each of its selects.
        cost, receipt: of the release; None where nothing was measured.
        joint: the same numbers with their errors, needed where the statement has an outer query.
    """
    if item.outer is None:
        (select,), (numbers,) = item.selects, filled
        plain = select.query.shell.plain
        parts = _project(select, numbers) if plain else _evaluate(select, numbers, cost, sealed)
    else:
        assert joint is not None
        parts = _put_together(item, filled, cost, sealed, joint)
    clipped = dict.fromkeys(note for select in item.selects for note in select.clipped())
    if item.truncation is not None and item.truncation.level is not None:
        level = number_text(item.truncation.level)
        clipped[f"values above {level} are clipped to it: the sums are biased downwards"] = None
    result = Result(
        item.columns,
        parts.types,
        parts.columns,
        parts.errors,
        item.text,
        cost=cost,
        receipt=receipt,
    )
    unknown = ", ".join(span.name for span in result.spans if span.unknown)
    notes = (UNKNOWN.format(unknown),) if unknown else ()
    return replace(result, notes=(*notes, *clipped, *item.decided))


def integer_columns(item: Compiled, fractions: Sequence[AbstractSet[int]]) -> tuple[bool, ...]:
    """Mark integers to SQL that the plan makes whole: rounding them adds nothing to their errors.

    ``fractions`` are, by select, the aggregates whose numbers it does not make whole. A column of
    an outer query may depend on any number of its selects.
    Guarantee: a function of statement and plan; no value is looked at.
    """
    found = [
        [_is_whole(output, broken) for output in select.query.shell.outputs]
        for select, broken in zip(item.selects, fractions, strict=True)
    ]
    if item.outer is None:
        return tuple(found[0])
    below = all(
        whole or not (output.whole and output.noisy)
        for select, wholes in zip(item.selects, found, strict=True)
        for output, whole in zip(select.query.shell.outputs, wholes, strict=True)
    )
    pairs = zip(item.outer.whole, item.outer.noisy, strict=True)
    return tuple(whole and (below or not noisy) for whole, noisy in pairs)


def _is_whole(output: Output, broken: AbstractSet[int]) -> bool:
    over = broken if output.over is None else output.over
    return output.whole and not (output.noisy and broken & over)


def _project(select: Select, filled: NoisySelect) -> _Parts:
    keys = select.key_columns()
    columns: list[Vector] = []
    errors: list[Vector | None] = []
    types: list[str] = []
    for output in select.query.shell.outputs:
        if output.key is not None:
            columns.append(keys[output.key])
            errors.append(None)
            types.append(_type_name(select.types[output.key]))
            continue
        assert output.aggregate is not None
        columns.append(filled.answers[output.aggregate])
        variance = filled.covariances.get((output.aggregate, output.aggregate))
        roots = (
            repeated(None, select.rows) if variance is None else Vector.finite(np.sqrt(variance))
        )
        errors.append(roots)
        types.append(_type_name(select.kinds[output.aggregate]))
    return _Parts(tuple(columns), tuple(errors), tuple(types))


def _evaluate(
    select: Select,
    filled: NoisySelect,
    cost: CostInfo | None,
    sealed: SealedConnection,
    slopes: bool = False,
) -> _Parts:
    shell = select.query.shell
    width = law(cost.noise).interval if cost is not None else 0.0
    _fill_cells(select, filled, width, sealed)
    kinds, columns = sealed.vectors(shell.text(slopes=slopes), PATIENT)
    found = tuple(map(plain, columns))
    count = len(shell.outputs)
    places = itertools.count(count)
    errors = tuple(
        _spreads(index, None if output.stddev is None else next(places), found)
        if output.noisy and not output.uncertainty
        else None
        for index, output in enumerate(shell.outputs)
    )
    types = tuple(_type_name(kind) for kind in kinds[:count])
    return _Parts(found[:count], errors, types, kinds[:count], columns[next(places) :])


def _put_together(
    item: Compiled,
    filled: Sequence[NoisySelect],
    cost: CostInfo | None,
    sealed: SealedConnection,
    joint: StatementNumbers,
) -> _Parts:
    """Run the outer query of a statement over the results of its selects."""
    outer = item.outer
    assert outer is not None
    for index, (select, numbers) in enumerate(zip(item.selects, filled, strict=True)):
        parts = _evaluate(select, numbers, cost, sealed, select.query.shell.tail.whole)
        sealed.fill(f"t{index}", _noisy_table(select, parts))
    for table in outer.public:
        sealed.fill(table.name, table.columns)
    kinds, columns = sealed.vectors(outer.sql, PATIENT)
    found = tuple(map(plain, columns))
    count = len(outer.columns)
    errors = tuple(
        None if not noisy else joint.errors(slopes, found) if slopes else _spreads(k, place, found)
        for k, (place, noisy, slopes) in enumerate(
            zip(outer.errors, outer.noisy, outer.influences, strict=True)
        )
    )
    return _Parts(found[:count], errors, tuple(map(_type_name, kinds[:count])))


def _spreads(column: int, place: int | None, found: Sequence[Vector]) -> Vector:
    """The standard errors in another column; what is NULL has none."""
    if place is None:
        return repeated(None, len(found[column]))
    return Vector.finite(np.where(found[column].nulls(), np.nan, found[place].numbers()))


def _noisy_table(select: Select, parts: _Parts) -> dict[str, tuple[str, Sequence[object]]]:
    """The result of a select as a table of the outer shell."""
    rows = len(parts.columns[0]) if parts.columns else 0
    numbers = ("BIGINT", range(rows))
    columns: dict[str, tuple[str, Sequence[object]]] = {"i": numbers, "r0": numbers}
    slopes = iter(parts.slopes)
    for position, output in enumerate(select.query.shell.outputs):
        columns[f"c{position}"] = (parts.kinds[position], parts.columns[position])
        spread = parts.errors[position]
        if output.stddev is not None and spread is not None:
            columns[f"e{position}"] = ("DOUBLE", spread)
        for part, (_, sql) in enumerate(output.slopes if select.query.shell.tail.whole else ()):
            if sql != "1":
                columns[f"d{position}_{part}"] = ("DOUBLE", next(slopes, ()))
    return columns


def _fill_cells(
    select: Select, filled: NoisySelect, width: float, sealed: SealedConnection
) -> None:
    shell = select.query.shell
    kinds = cell_kinds(shell, select.types, select.kinds)
    values: dict[str, Sequence[object]] = {
        "i": range(select.rows),
        "z": repeated(width, select.rows),
    }
    for index, column in enumerate(select.key_columns()):
        values[f"k{index}"] = column
        values[f"g{index}"] = select.absences(index)
    for index, answer in enumerate(filled.answers):
        values[f"a{index}"] = answer
    for i, j in shell.covariances:
        values[f"c{i}_{j}"] = Vector(filled.covariances[i, j])
    for place, group in enumerate(shell.groups):
        values[f"m{place}"] = _by_rows(filled.covariances, group)
    sealed.fill("cells", {name: (kind, values[name]) for name, kind in kinds.items()})


def _by_rows(covariances: Covariances, group: Sequence[int]) -> list[list[list[float]]]:
    """The covariances of all pairs of a group, as lists, of every row of a result."""
    lists = [
        np.stack([covariances[i, j] for j in group[p:]], axis=1).tolist()
        for p, i in enumerate(group)
    ]
    return [list(row) for row in zip(*lists, strict=True)]


def plain(column: Vector) -> Vector:
    """A column in which NaN and infinities of post-processing are NULL.

    >>> plain(Vector.of([1.5, float("nan")]))
    (1.5, None)
    """
    if not isinstance(column.values, np.ndarray) or column.values.dtype != np.float64:
        return column
    broken = ~np.isfinite(column.values)
    if not broken.any():
        return column
    missing = broken if column.missing is None else broken | column.missing
    return Vector(column.values, missing, column.places)


def _type_name(kind: str) -> str:
    if kind.endswith("]"):
        return "list"
    base = kind.split("(")[0]
    return _TYPES.get(base, "number" if base == "DECIMAL" else "integer")
