"""A statement as products: what every aggregate is a sum of, and how its rows are arranged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog import Table
from dpsql.records import dataclass, field
from dpsql.sql.cells.group_rows import Grouping, repeat_keys
from dpsql.sql.query import OuterSql, Query, Rank, Shell
from dpsql.sql.text.clauses import Truncation
from dpsql.sql.text.lexemes import StatementReader
from dpsql.vectors import Vector, repeated
from dpsql.workload.term import Term, refuse_pattern


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One aggregate over one grouping set: a sum of products; none where it is always zero.

    In ``whole`` a condition that couples columns is kept as one pattern; ``apart`` has products
    alone, None where they are too many. A term's rows, flattened in column order, become (result
    rows, values of the ranked column) by ``arrange``; ``values`` are those of the ranked column,
    () without one, and ``upto`` the upper edges of its bins, () where it has none: whole
    numbers where it has no others. Where ``distinct``, what is counted are groups with a row: a
    row of the terms is a group with one value of a column, and the answer adds up what each of
    those of a group counts for.
    """

    branch: int
    aggregate: int
    axes: tuple[Grouping, ...]
    whole: tuple[Term, ...]
    apart: tuple[Term, ...] | None
    rank: Rank | None = None
    values: tuple[Any, ...] = ()
    units: bool = False
    distinct: tuple[str, tuple[float, ...]] | None = None
    upto: tuple[float, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """The products alone. Raises: ProgrammingError (E_PREDICATE) where they are too many."""
        if self.apart is None:
            pattern = next(t.pattern for t in self.whole if t.pattern is not None)
            refuse_pattern(pattern, self.units)
        return self.apart

    def arrange(self, flat: NDArray[np.float64], order: Sequence[str]) -> NDArray[np.float64]:
        """Reorder rows from ``order``, an order of columns, to result order.

        A column of one group, which all rows are in, may not be among them.

        Args:
            flat: (rows,), the last column of ``order`` varies fastest.
            order: columns, each once.
        """
        if len(self.axes) < 2:
            return flat
        places = {column: place for place, column in enumerate(order)}
        natural = sorted(self.axes, key=lambda axis: places.get(axis.column, len(order)))
        tensor = flat.reshape([len(axis.groups) for axis in natural])
        return tensor.transpose([natural.index(axis) for axis in self.axes]).ravel()


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """One grouping set: its axes in result order, and the keys that it leaves out.

    ``fixed`` are the values of keys that are the same in all of its rows.
    """

    axes: tuple[Grouping, ...]
    absent: frozenset[int]
    fixed: Mapping[int, Any] = field(default_factory=dict)
    rows: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", math.prod(len(axis.groups) for axis in self.axes))


@dataclass(frozen=True, slots=True, eq=False)
class Select:
    """A query as products. ``types`` are the DuckDB types of the keys, ``kinds`` of the aggregates.

    ``answers`` are in order of branch, then of aggregate; ``decided`` says what the declared
    domains decide by themselves.
    """

    query: Query
    table: Table
    branches: tuple[Branch, ...]
    types: tuple[str, ...]
    kinds: tuple[str, ...]
    answers: tuple[Answer, ...]
    decided: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(branch.rows for branch in self.branches)

    @property
    def is_static(self) -> bool:
        """True if the catalog alone determines the answer."""
        return self.rows == 0 or not any(answer.whole for answer in self.answers)

    def clipped(self) -> tuple[str, ...]:
        """Notes on measures that are summed: their values are clipped."""
        found: dict[str, tuple[float, float]] = {}
        for answer in self.answers:
            for term in answer.whole:
                for name, polynomial in term.polynomials.items():
                    column = self.table.columns[name]
                    if column.bounds is not None:
                        low, high = column.bounds
                        found[column.name] = polynomial.clip or (float(low), float(high))
        return tuple(f"{name} is clipped to [{lo:g}, {hi:g}]" for name, (lo, hi) in found.items())

    def key_columns(self) -> list[Vector]:
        """The values of every key in result order."""
        columns: list[list[Vector]] = [[] for _ in self.query.keys]
        for branch in self.branches:
            found = repeat_keys(branch.axes, len(columns), branch.rows)
            for key, (column, values) in enumerate(zip(columns, found, strict=True)):
                known = key in branch.fixed
                column.append(repeated(branch.fixed[key], branch.rows) if known else values)
        return [each[0] if len(each) == 1 else Vector.joined(each) for each in columns]

    def absences(self, key: int) -> Vector:
        """GROUPING(key) in every result row."""
        return Vector.joined([repeated(int(key in b.absent), b.rows) for b in self.branches])


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A statement as one SELECT over a private table, or several that ``outer`` puts together.

    ``weight`` says how much its errors count, ``max_stddev`` which standard error its columns may
    have at most, ``within`` which part of what public facts say they are; where ``lenient``, those
    are left alone of whose errors nothing is known. ``reconstruct`` says how answers follow from
    what was measured. ``outer`` is SQL over ``t0``, ``t1``, ..., the results of the selects, each
    with its own column names; None where there is one select and nothing else. ``truncation`` says
    where values are clipped that are summed. ``seeks`` are columns (table, column) whose keys are
    found first where they were not, and ``chance`` is the discovery_delta for it; until then it is
    compiled with one key each. ``typed`` are the types that a dialect of its own gives its columns,
    () where it has none; ``reader`` read its text.
    """

    text: str
    selects: tuple[Select, ...]
    outer: OuterSql | None = None
    weight: float = 1.0
    max_stddev: float | None = None
    within: float | None = None
    lenient: bool = False
    reconstruct: str | None = None
    truncation: Truncation | None = None
    seeks: tuple[tuple[str, str], ...] = ()
    chance: str | None = None
    typed: tuple[str | None, ...] = ()
    reader: StatementReader | None = None

    @property
    def rows(self) -> int:
        return sum(select.rows for select in self.selects)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the result columns."""
        if self.outer is not None:
            return self.outer.columns
        return tuple(output.name for output in self.selects[0].query.shell.outputs)

    @property
    def integers(self) -> tuple[bool, ...]:
        """The result columns that are integers to SQL: numbers are rounded where they are told."""
        if self.outer is not None:
            return self.outer.whole
        return tuple(output.whole for output in self.selects[0].query.shell.outputs)

    @property
    def is_static(self) -> bool:
        """True if the catalog alone determines the answer."""
        return all(select.is_static for select in self.selects)

    @property
    def is_modelled(self) -> bool:
        """True if it is about synthetic tables alone; one about public rows is about none."""
        return bool(self.selects) and all(select.table.synthetic for select in self.selects)

    @property
    def decided(self) -> tuple[str, ...]:
        """Notes on what the declared domains decide by themselves, in words."""
        said = [each for select in self.selects for each in select.decided]
        return tuple(dict.fromkeys([*said, *(self.outer.notes if self.outer else ())]))

    @property
    def demands(self) -> bool:
        """True if its errors have to keep to something."""
        return self.max_stddev is not None or self.within is not None

    def shown(self) -> list[int]:
        """The places of the answers that are columns of their own, no ranks and not known."""
        repeats = None if self.outer is None else self.outer.repeats
        out: list[int] = []
        start = 0
        for number, select in enumerate(self.selects):
            columns = {output.aggregate for output in select.query.shell.outputs}
            if repeats is not None:
                columns &= {aggregate for place, aggregate in repeats if place == number}
            for place, answer in enumerate(select.answers, start):
                if answer.aggregate in columns and answer.rank is None and answer.whole:
                    out.append(place)
            start += len(select.answers)
        return out

    def answers(self) -> tuple[tuple[Select, Answer], ...]:
        """Answers of all SELECTs, in order."""
        return tuple((select, answer) for select in self.selects for answer in select.answers)


def cell_kinds(shell: Shell, types: Sequence[str], kinds: Sequence[str]) -> dict[str, str]:
    """The DuckDB types of the columns of the cells that a shell reads."""
    found = {"i": "BIGINT", "z": "DOUBLE"}
    found |= {f"k{i}": kind for i, kind in enumerate(types)}
    found |= {f"g{i}": "INTEGER" for i in range(len(types))}
    found |= {f"a{j}": kind for j, kind in enumerate(kinds)}
    found |= {f"c{i}_{j}": "DOUBLE" for i, j in shell.covariances}
    return found | {f"m{place}": "DOUBLE[][]" for place in range(len(shell.groups))}
