"""``dpsql check``: what a catalog leaves out of its data, told to the curator.

What reads data is imported by the command, so that ``--help`` does not wait for the engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from dpsql.errors import DatabaseError, UsageError, printable, printable_lines
from dpsql.relation.row_view import ROOM
from dpsql.ui.connect import LARGEST_EPSILON, WIDE, blaming_options, setting_option
from dpsql.ui.narration import tell, tell_error

if TYPE_CHECKING:
    from fractions import Fraction

    from dpsql.catalog import Table
    from dpsql.dbapi.checking import ColumnFigures, Figures, NoisyCount, OpenedSource, PublicKey

PRIVATE = "private: exact figures of the data, for the curator alone, not for release"
NOWHERE = ": are keys written alike in both, and all of its rows there?"
MOST_VALUES = 20
"""Undeclared values of a column that are listed."""
MOST_SHOWN = 5
"""Values of a public table, or of a list, that are shown."""
MOST_NAMES = 40
"""Undeclared columns of a table that are listed."""


@click.command(context_settings=WIDE)
@click.argument("catalog")
@click.option("--table", metavar="NAME", help="This table alone.")
@click.option("--values", is_flag=True, help="Name the values that are not declared.")
@click.option("--dp", is_flag=True, help="A private estimate instead, which is paid for.")
@setting_option("epsilon", "Epsilon of the estimate.")
@setting_option("analyst")
def check(
    catalog: str,
    table: str | None,
    values: bool,
    dp: bool,
    epsilon: str | None,
    analyst: str | None,
) -> int:
    """Say whether the sources of CATALOG fit it, and which rows never count.

    The figures are exact and private: they are for whoever has the data, cost nothing, and must
    not be shown to analysts. With --dp they are noisy, charged to the budget, and may be.
    """
    from dpsql.dbapi.checking import chosen_tables

    if dp == (epsilon is None) or (dp and values):
        hint = "dpsql check CATALOG --dp --epsilon 0.1, or dpsql check CATALOG [--values]"
        raise UsageError("E_SETTING", "--dp and --epsilon belong together", hint=hint)
    tables = chosen_tables(catalog, table)
    if epsilon is None:
        return _tell_figures(tables, chosen_tables(catalog, None), values)
    from dpsql.dbapi import connection as connection_module

    with blaming_options():
        amount = connection_module.parse_epsilon_text(epsilon, LARGEST_EPSILON)
    return _tell_estimates(catalog, tables, amount, analyst)


def _tell_figures(tables: Sequence[Table], known: Sequence[Table], with_values: bool) -> int:
    from dpsql.dbapi.checking import OpenedSource, examine, public_keys

    _print([PRIVATE])
    status = 0
    for found in examine(tables, {each.name.casefold(): each for each in known}):
        if isinstance(found, DatabaseError):
            tell_error(found)
            status = found.exit_code
        elif isinstance(found, OpenedSource):
            _print(_opened_lines(found))
        else:
            _print(figures_lines(found, with_values))
            table = next(each for each in tables if each.name == found.table)
            _print(_public_line(each) for each in public_keys(table, known))
    return status


def _public_line(found: PublicKey) -> str:
    """A line on public rows that a column does not meet, or the other way round."""
    column, public = printable(found.column), printable(found.public)
    said = []
    if found.unmet:
        lost = count(len(found.unmet), "value finds", "values find")
        alike = ": are they written alike in both?" if len(found.unmet) == found.declared else ""
        listed = f"{lost} no row of {public}, joined by {column}{alike or _listed(found.unmet)}"
        said.append(f"of {found.declared:,} declared, {listed}")
    if found.unknown:
        more = count(len(found.unknown), "value", "values")
        said.append(f"{more} of {public} not declared in {column}{_listed(found.unknown)}")
    return f"  {column}: {'; '.join(said)}"


def _listed(values: Sequence[str]) -> str:
    shown = ", ".join(repr(printable(each)[:60]) for each in values[:MOST_SHOWN])
    more = len(values) - MOST_SHOWN
    return f" ({shown}{f' and {more:,} more' if more > 0 else ''})"


def _opened_lines(found: OpenedSource) -> list[str]:
    columns = ", ".join(f"{printable(n)} {family}" for n, family in found.families.items())
    return [f"{printable(found.table.name)}: public, {found.kind}, opens: {columns}"]


def figures_lines(found: Figures, with_values: bool) -> list[str]:
    """The exact figures of one table as text."""
    files = f", {count(found.files, 'file')}" if found.files else ""
    kind = f"{found.kind}{files}"
    lines = [f"{printable(found.table)}: {kind}, opens; {count(found.rows, 'row')}"]
    lines += _room_lines(found)
    if found.unread:
        lost = sum(e.count for e in found.unread)
        never = count(lost, "line is no row and never counts", "lines are no rows and never count")
        lines.append(f"  {never}")
    for each in found.unread:
        at = f"first in line {each.first:,}, column {each.place:,}, of {printable(each.file)}"
        lines.append(f"    {count(each.count, 'has', 'have')} {each.why}, {at}: {each.remedy}")
    if found.unit is not None:
        unit = printable(found.unit)
        ids = f": write {unit} in each" if found.unowned and not found.met else ""
        never = "never counts" if found.unowned == 1 else "never count"
        lines.append(f"  {count(found.unowned, 'row')} without {unit} {never}{ids}")
        lines.append(
            f"  {count(found.units, 'unit')}, {found.crowded:,} beyond max_rows = "
            f"{found.max_rows:,}: {found.dropped:,} of their rows "
            f"{'does' if found.dropped == 1 else 'do'} not count"
        )
        lines += [
            f"    max_rows = {most:,} would keep {count(rows, 'row')}"
            for most, rows in found.roomier
        ]
    for way in found.met:
        keys, table = printable(", ".join(way.keys)), printable(way.table)
        others = (
            "" if way.unit else f", {way.foreign:,} one of another {printable(str(found.unit))}"
        )
        lines.append(
            f"  by {keys}, {count(way.found, 'row finds', 'rows find')} a row of {table}{others}, "
            f"{way.nowhere:,} none"
            f"{NOWHERE if way.nowhere else ''}"
        )
    lines.append(f"  {count(found.most, *COUNTS)} where no column is mentioned")
    lines.append(f"  {count(found.least, *COUNTS)} where all columns are")
    for column in found.columns:
        lines += _column_lines(column)
        lines += _value_lines(column.values) if with_values else []
    if found.undeclared:
        names = ", ".join(map(printable, found.undeclared[:MOST_NAMES]))
        more = len(found.undeclared) - MOST_NAMES
        names += f" and {more:,} more" if more > 0 else ""
        lines.append(f"  not declared, so that nothing can be asked of it: {names}")
    return lines


COUNTS = ("row counts", "rows count")


def count(number: int, one: str, more: str = "") -> str:
    """Return a number with the word for what is counted, in the singular for one.

    Args:
        number: of things.
        one: word for a single one.
        more: word for several, unless it is ``one`` with an s.

    >>> count(1, "row"), count(1200, "row"), count(1, "is", "are")
    ('1 row', '1,200 rows', '1 is')
    """
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def _room_lines(found: Figures) -> list[str]:
    """Lines for the curator on the number of rows, which nothing else is decided by."""
    if found.room is None:
        return []
    if found.stated is None and found.rows > found.room:
        more = "`spill` names a folder with room for more"
        return [f"  there is room for {count(found.room, 'row')} alone: {more}"]
    if found.stated is None:
        return [f"  {ROOM.format(found.room)}"]
    if found.rows > found.stated:
        stated = count(found.stated, "row")
        return [f"  row_count_hint states {stated}: state as many as there may be"]
    return [f"  room for {count(found.stated, 'row')}, as row_count_hint states"]


def _column_lines(column: ColumnFigures) -> list[str]:
    stored = "" if column.stored in (column.type, "text") else f", stored as {column.stored}"
    name = f"{printable(column.name)} ({column.type}{stored})"
    if column.idle:
        return [f"  {name}: nothing can be asked of it: {column.idle}"]
    lines = [f"  {name}: takes every row"]
    if column.outside:
        lines = [f"  {name}: leaves out {count(column.outside, 'row')} where it is mentioned"]
    if column.nulls:
        null = count(column.nulls, "is NULL: null = true would count it", NULLS)
        lines.append(f"    {null}")
    if column.words:
        told = ", ".join(f"{rows:,} {_word(word)}" for word, rows in column.words)
        lines.append(f"    NULL is written in {count(len(column.words), 'way')}: {told}")
    for each in column.remedies:
        kinds = count(each.values, "value")
        holds = count(each.rows, "holds", "hold")
        lines.append(f"    {holds} {kinds} not declared: {each.words}")
    if column.clipped is not None:
        cut = column.clipped
        lines.append(
            f"    {count(cut.below, 'is', 'are')} below its bounds and {cut.above:,} above, and "
            "clipped: "
            f"their mean is {cut.clipped_mean:.6g} instead of {cut.mean:.6g}; wider bounds clip "
            "fewer, with more noise in sums"
        )
    return lines


NULLS = "are NULL: null = true would count them"


def _word(word: str) -> str:
    return f"as {printable(word)!r}" if word else "as nothing"


def _value_lines(values: Sequence[tuple[str, int]]) -> list[str]:
    lines = [f"      {printable(value)[:60]!r}: {rows:,}" for value, rows in values[:MOST_VALUES]]
    more = len(values) - MOST_VALUES
    return [*lines, f"      and {more:,} more"] if more > 0 else lines


def _tell_estimates(
    catalog: str, tables: Sequence[Table], epsilon: Fraction, analyst: str | None
) -> int:
    from dpsql.dbapi import connection as connection_module
    from dpsql.dbapi.checking import estimate_left_out

    connection = connection_module.connect(catalog, analyst=analyst)
    try:
        private = [table for table in tables if not table.public]
        found = connection.told(
            lambda: estimate_left_out(connection, private, epsilon), "dpsql check --dp"
        )
    finally:
        connection.close()
    for table in private:
        mine = [each for each in found.found if each.table == table.name.casefold()]
        _print(estimate_lines(table, mine))
    paid = "free: released before" if found.free else f"charged ε {epsilon}"
    tell(f"a private estimate, which may be shown to anybody; {paid}, entry {found.entry}")
    return 0


def estimate_lines(table: Table, found: Iterable[NoisyCount]) -> list[str]:
    """The private estimate of one table as text."""
    rows = {each.columns: each for each in found if not each.units}
    whole = rows.pop(())
    units = [each for each in found if each.units]
    count = _number(whole.value, whole.stddev)
    lines = [f"{printable(table.name)}: {count} rows count where no column is mentioned"]
    for each in units:
        lines.append(f"  {_number(each.value, each.stddev)} units of {table.unit.column} have rows")
    for columns, each in rows.items():
        gap = whole.value - each.value
        error = math.hypot(whole.stddev, each.stddev)
        known = whole.value > 3 * whole.stddev
        percent = f" ({100 * gap / whole.value:.2g} %)" if known else ""
        names = printable(", ".join(table.columns[name].name for name in columns))
        lines.append(f"  {names}: {_number(gap, error)}{percent} rows are left out")
    return lines


def _number(value: float, stddev: float) -> str:
    return f"{value:,.0f} ± {stddev:,.0f}" if stddev >= 10 else f"{value:,.1f} ± {stddev:.2g}"


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable_lines(line))
