"""Memory that a request will need, from public facts: refused in time rather than run out.

What a request holds at its peak is forecast from the sizes of columns, products and results. The
figures per number are fitted to runs of random statements, each in a process of its own:
``python -m tests.support.held_memory``. Decision 93 has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dpsql.algebra.integer_rows import IntegerRows, KronRows
from dpsql.errors import ProgrammingError
from dpsql.records import dataclass
from dpsql.settings.machine import memory, request_memory
from dpsql.strategy.base import Strategy

if TYPE_CHECKING:
    from dpsql.plan.target import Views
    from dpsql.sql.compiled import Compiled, Select

NUMBER, OBJECT = 8, 56
"""Bytes of a number in an array, and of one that may pass 64 bits."""

COPIES = 3
"""Arrays of the size of one block that are alive at once while it is measured or solved."""

WRITTEN = 4
"""Arrays of the size of rows that are written out, and of their inner products, at once."""

ROW, FIELD = 64, 32
"""Bytes of a result row, and of each of its fields."""

CELL = 450
"""Bytes of a value of a column that is mentioned: as SQL, in codes, and in what is planned."""

ANSWER = 4
"""Arrays of all numbers that are read off a release: values, variances, both arranged."""

PROJECTED, EVALUATED = 24, 120
"""Bytes of a field of a SELECT while rows are put together, and where DuckDB evaluates them."""

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True, slots=True)
class ResultSize:
    """Sizes of what is asked: result rows and their fields, errors among these; answers; cells.

    ``shell`` are bytes that the largest statement takes while its rows are put together.
    """

    rows: int
    fields: int
    answers: int = 0
    cells: int = 0
    shell: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: noisy integers, estimated components, working space, rows of results, and cells."""

    measured: int
    estimated: int
    working: int
    results: int
    cells: int = 0

    @property
    def total(self) -> int:
        """Return the bytes needed at once, at most."""
        return self.measured + self.estimated + self.working + self.results + self.cells


def result_size(statements: Sequence[Compiled], views: Views) -> ResultSize:
    """Return the sizes of the results of statements, over tables of which these rows count."""
    sizes = [(sum(map(_rows, item.selects)), len(item.columns)) for item in statements]
    tables = {s.query.table: s.table for item in statements for s in item.selects}
    cells = sum(
        tables[key].columns[name].size or 0
        for key, view in views.items()
        for name in view.names
        if name in tables[key].columns
    )
    answers = sum(
        select.branches[answer.branch].rows * (len(answer.values) if answer.rank else 1)
        for item in statements
        for select in item.selects
        for answer in select.answers
    )
    return ResultSize(
        sum(rows for rows, _ in sizes),
        sum(2 * rows * count for rows, count in sizes),
        answers,
        cells,
        max(map(_shell, statements), default=0),
    )


def _rows(select: Select) -> int:
    return sum(branch.rows for branch in select.branches)


def _shell(item: Compiled) -> int:
    """The bytes that it takes to put the rows of one statement together."""
    fields = sum(
        _rows(select) * (len(select.query.aggregates) + len(select.query.shell.outputs))
        for select in item.selects
    )
    plain = item.outer is None and all(select.query.shell.plain for select in item.selects)
    return fields * (PROJECTED if plain else EVALUATED)


def forecast_memory(
    size: ResultSize, strategies: Iterable[Strategy] = (), wide: bool = False
) -> Memory:
    """Return the memory for strategies and for results.

    ``wide`` says that what is measured may pass 64 bits.
    """
    measured, estimated, largest = 0, 0, 0
    written: dict[int, int] = {}
    for strategy in strategies:
        sizes = [(block.rows, block.estimated) for block in strategy.blocks]
        measured += sum(measures for measures, _ in sizes)
        estimated += sum(cells for _, cells in sizes)
        largest = max([largest, *(max(size) for size in sizes)])
        for block in strategy.blocks:
            written.update(_written(block.integer_rows))
    one = OBJECT if wide else NUMBER
    return Memory(
        2 * NUMBER * measured,
        NUMBER * estimated,
        COPIES * one * largest + WRITTEN * NUMBER * sum(written.values()),
        ROW * size.rows + FIELD * size.fields + ANSWER * NUMBER * size.answers + size.shell,
        CELL * size.cells,
    )


def _written(rows: IntegerRows) -> Mapping[int, int]:
    """The numbers of rows that are written out and of their inner products, by matrix."""
    if not isinstance(rows, KronRows):
        return {}
    explicit = [m for m in rows.matrices if hasattr(m, "nbytes")]
    return {id(m): m.shape[0] * m.shape[1] + min(m.shape) ** 2 for m in explicit if m is not None}


def check_request(
    size: ResultSize, limit: int, strategies: Iterable[Strategy] = (), wide: bool = False
) -> None:
    """Refuse strategies and results that need more than the limit; see ``forecast_memory``.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    check_memory(forecast_memory(size, strategies, wide), size.rows, limit)


def check_memory(needed: Memory, rows: int, limit: int) -> None:
    """Refuse what needs more than the limit. Raises ProgrammingError E_TOO_LARGE, naming what fits.

    Guarantee: forecast and limit are functions of the request, the catalog and the machine.
    """
    if needed.total <= limit:
        return
    rest = needed.total - needed.results
    if rest > limit:
        hint = "ask for fewer columns at once, or group their values into coarser bins"
    else:
        fits = rows * (limit - rest) // needed.results
        hint = f"about {fits:,} rows fit: ask for fewer keys or statements at once"
    if limit < memory():
        hint += "; SET memory_limit allows for more"
    raise ProgrammingError(
        "E_TOO_LARGE",
        f"the answers need about {_text(needed.total)} of memory, {_text(needed.results)} of it"
        f" for {rows:,} result rows; the limit is {_text(limit)}",
        hint=hint,
    )


def limit_of(memory_limit: int | None) -> int:
    """Return the bytes that a request may need: what is set, or half of what the machine has.

    What is set counts up to all that this process may have.
    """
    return request_memory() if memory_limit is None else min(memory_limit, memory())


def _text(count: int) -> str:
    for unit, size in UNITS:
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"
