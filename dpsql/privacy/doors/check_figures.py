"""Exact figures of a private table for the curator, who has the data: what its views leave out.

Nothing here is noisy, and nothing of it is for release. Only ``dpsql check`` asks for it: no SQL,
no connection and no function of the package that analysts are given leads here.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np

from dpsql.catalog.catalog import Column, Reference, Table, Unit, engine_of
from dpsql.catalog.delimited import MISSING_WORDS, Delimited
from dpsql.catalog.delimited import PLAIN as PLAIN_CSV
from dpsql.catalog.domain import BoundedBins, DecimalRange, Values
from dpsql.catalog.draft import propose_type
from dpsql.catalog.read_units import key_pairs
from dpsql.privacy.vault.codes.encode import OUTSIDE
from dpsql.privacy.vault.data_engine import Flags, Form, StoredTable
from dpsql.privacy.vault.files.csv_patterns import spelling
from dpsql.privacy.vault.files.duckdb import FileTable
from dpsql.privacy.vault.files.lines import REMEDIES
from dpsql.privacy.vault.files.stores import one_listing
from dpsql.privacy.vault.rejected_lines import find_rejected_lines
from dpsql.privacy.vault.sealed_errors import seal_errors
from dpsql.privacy.vault.servers.held_sessions import one_snapshot
from dpsql.privacy.vault.stored_rows import (
    ask_all,
    check_keys,
    find_engine,
    open_table,
    position,
    read_rows,
)
from dpsql.privacy.vault.unit.local_rows import take_stock
from dpsql.privacy.vault.unit.relation_frame import Frame, Key
from dpsql.privacy.vault.unit.rows import Rows
from dpsql.privacy.vault.unit.shared_units import together
from dpsql.privacy.vault.unit.unit_numbers import Digest
from dpsql.records import dataclass, replace
from dpsql.relation.lineage import named
from dpsql.relation.row_view import LEFT_OUT
from dpsql.relation.unit_local import DerivedTable

LARGER = (2, 3, 5)
"""Larger values of max_rows that are tried, by how many times they are larger."""
ROW = "\0row"
"""A key that no column is called by: the number of a row."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Rows that a column leaves out, how many different values they hold, and what would help."""

    rows: int
    values: int
    words: str


@dataclass(frozen=True, slots=True)
class ClippedValues:
    """The values below and above the bounds of a column, and what clipping does to their mean."""

    below: int
    above: int
    mean: float
    clipped_mean: float


@dataclass(frozen=True, slots=True)
class ColumnFigures:
    """The rows that one column leaves out: for NULL, and for values that are not declared.

    ``values`` are the undeclared values, the most frequent first, with their numbers of rows,
    ``remedies`` say how they would be counted. ``type`` is the declared one, ``stored`` the family
    of what is stored. ``idle`` says why nothing can be asked of the column. ``words`` are those
    that the source declares for what is missing, and nothing at all, with their numbers of rows.
    """

    name: str
    type: str
    stored: str
    nulls: int
    undeclared: int
    values: tuple[tuple[str, int], ...]
    remedies: tuple[Remedy, ...]
    clipped: ClippedValues | None
    idle: str
    words: tuple[tuple[str, int], ...] = ()

    @property
    def outside(self) -> int:
        """The rows left out of all answers that use the column."""
        return self.nulls + self.undeclared


@dataclass(frozen=True, slots=True)
class ReferenceCounts:
    """Numbers of rows that find what they refer to, those of another unit, and those of none.

    A reference of ``unit`` decides whose a row is: there are then none of another unit.
    """

    table: str
    keys: tuple[str, ...]
    unit: bool
    found: int
    foreign: int
    nowhere: int


@dataclass(frozen=True, slots=True)
class LostLines:
    """Lines of files that are no rows for one reason: how many, the first, and what to do.

    ``place`` is the character, from 1 on, at which the first goes wrong.
    """

    why: str
    count: int
    file: str
    first: int
    place: int
    remedy: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Exact figures of what the declared views of a table leave out.

    ``unowned`` are rows without a privacy unit. ``crowded`` units have more than ``max_rows`` rows;
    ``dropped`` are the rows beyond. ``most`` rows count where no column is mentioned, ``least``
    where all are. ``unread`` are the lines of CSV files that are no rows, by reason.
    ``roomier`` has larger ``max_rows`` and the rows that would count; ``met`` the references.
    ``room`` are the rows that room is taken for before the first is read: None where a server
    counts them. ``stated`` is the number that the catalog states. Columns are ``undeclared`` that
    the source has and the catalog does not name.
    """

    table: str
    unit: str | None
    max_rows: int
    kind: str
    files: int
    rows: int
    unowned: int
    units: int
    crowded: int
    dropped: int
    most: int
    least: int
    columns: tuple[ColumnFigures, ...]
    unread: tuple[LostLines, ...]
    roomier: tuple[tuple[int, int], ...]
    met: tuple[ReferenceCounts, ...]
    room: int | None = None
    stated: int | None = None
    undeclared: tuple[str, ...] = ()


def inspect_source(table: Table) -> tuple[str, int, dict[str, str]]:
    """The kind of a source, its number of files, and the type family of every column.

    Raises: DataUnavailable where it does not open, or where types do not fit the catalog.
    """
    stored = find_engine(table).open(table) if table.public else open_table(_plain(table))
    return stored.kind, _files(stored), dict(stored.columns)


def inspect_rows(table: Table, known: Mapping[str, Table] | None = None) -> Figures:
    """Read a private table, and those it refers to, and count what its views leave out.

    ``known`` are the tables of its catalog. Raises: DataUnavailable; InternalError, with one
    constant text, when the rows cannot be read.
    """
    tables = _related(table, known or {})
    with one_snapshot(), one_listing():
        stored = {each.name.casefold(): open_table(_plain(each)) for each in tables}
        check_keys(tables, stored)
        return seal_errors(lambda: _count(table, tables, stored))


def _related(table: Table, known: Mapping[str, Table]) -> list[Table]:
    """A table and those that it refers to, each after those that it refers to itself."""
    found: dict[str, Table] = {}
    for way in table.references:
        if way.table in known:
            found |= named(_bases(known[way.table]))
    return [*(found | named(_bases(table))).values()]


def _bases(table: Table) -> tuple[Table, ...]:
    return table.bases if isinstance(table, DerivedTable) else (table,)


def _files(stored: StoredTable) -> int:
    """The number of files: not of the folders that are charged, nor of the tables of a server."""
    named = (path for path in stored.paths if engine_of(path) is None)
    return sum(not os.path.isdir(path) for path in named)


def _plain(table: Table) -> Table:
    """The table as it is stored: who a row belongs to by reference is not in it."""
    return table if table.unit.through is None else replace(table, unit=Unit())


def _count(table: Table, tables: Sequence[Table], all_stored: Mapping[str, StoredTable]) -> Figures:
    opened = [_opened(each) for each in tables]
    read = {
        each.name.casefold(): _numbered(read_rows(all_stored[each.name.casefold()], plain, ""))
        for each, plain in zip(opened, map(_plain, opened), strict=True)
    }
    key = table.name.casefold()
    rows, stored = read[key], all_stored[key]
    missing = {name: _missing(rows, name, each) for name, each in table.columns.items()}
    wrong = {name: _undeclared(rows, name, each) for name, each in table.columns.items()}
    clipped = _clipped(stored, table)
    columns = tuple(
        _of_column(table, stored, name, missing[name], wrong[name], clipped.get(name))
        for name in table.columns
    )
    outside = [missing[name] | wrong[name] for name in table.columns]
    is_inside = ~np.logical_or.reduce([np.zeros(rows.count, dtype=bool), *outside])
    met: tuple[ReferenceCounts, ...] = ()
    if table.unit.column is None:
        units = counted = np.arange(rows.count)
    elif len(tables) == 1:
        assert rows.owners is not None
        counted = np.flatnonzero(rows.owners.owned)
        units = rows.owners.units[counted].astype(np.int64)
    else:
        frames = take_stock(opened, read, Digest("")).owned()
        counted, units = frames[key].keys[ROW][0], frames[key].units
        ways = (way for way in table.references if way.table in frames)
        met = tuple(_meet(table, way, frames, tables, rows) for way in ways)
    of_units, limit = np.bincount(units), table.unit.max_rows
    inside = np.bincount(units[is_inside[counted]])
    dropped = int(np.maximum(of_units - limit, 0).sum())
    most = int(of_units.max(initial=0))
    limits = sorted({most, *(n * limit for n in LARGER if n * limit < most)}) if dropped else []
    return Figures(
        table=table.name,
        unit=table.unit.column,
        max_rows=limit,
        kind=stored.kind,
        files=_files(stored),
        rows=rows.count,
        unowned=rows.count - len(np.unique(counted)),
        units=int((of_units > 0).sum()),
        crowded=int((of_units > limit).sum()),
        dropped=dropped,
        most=int(np.minimum(of_units, limit).sum()),
        least=int(np.minimum(inside, limit).sum()),
        columns=columns,
        unread=_unread(stored, Delimited.of(table.options)) if stored.kind in LEFT_OUT else (),
        roomier=tuple((each, int(np.minimum(of_units, each).sum())) for each in limits),
        met=met,
        room=None if table.is_pushed else table.room,
        stated=table.row_count_hint,
        undeclared=_unnamed(table, stored),
    )


def _unnamed(table: Table, stored: StoredTable) -> tuple[str, ...]:
    """Return the columns of a source that its catalog does not name, as they are stored."""
    unit = [] if table.unit.through or table.unit.column is None else [table.unit.column]
    named = [*(each.name for each in table.columns.values()), *table.keys, *unit]
    places = {position(table, stored, name) for name in named}
    return tuple(name for i, (name, _) in enumerate(stored.columns) if i not in places)


def _numbered(rows: Rows) -> Rows:
    """Rows with their own numbers for a key, so that they are known again among those of units."""
    numbers = np.arange(rows.count), np.ones(rows.count, dtype=bool)
    return replace(rows, keys={**rows.keys, ROW: numbers})


def _meet(
    table: Table,
    way: Reference,
    frames: Mapping[str, Frame],
    tables: Sequence[Table],
    rows: Rows,
) -> ReferenceCounts:
    """Count rows that find the row that they refer to, within their unit and beyond."""
    mine, other = frames[table.name.casefold()], frames[way.table]
    owner = next(each for each in tables if each.name.casefold() == way.table)
    pairs = key_pairs(table, way, owner) or ()
    is_unit = table.unit.through == way
    names, total = tuple(one for one, _ in way.on), rows.count if is_unit else mine.count
    own = [mine.keys[one.casefold()] for one, _ in pairs]
    if is_unit:
        own = [rows.keys[one.casefold()] for one, _ in pairs]
    theirs = [other.keys[two.casefold()] for _, two in pairs]
    anywhere = _found(own, theirs, total)
    if is_unit:
        return ReferenceCounts(
            owner.name, names, True, int(anywhere.sum()), 0, int((~anywhere).sum())
        )
    sides = [(side.units, np.ones(side.count, dtype=bool)) for side in (mine, other)]
    within = _found([sides[0], *own], [sides[1], *theirs], total)
    foreign = int((anywhere & ~within).sum()) if pairs else 0
    return ReferenceCounts(
        owner.name, names, False, int(within.sum()), foreign, total - int(within.sum()) - foreign
    )


def _found(own: Sequence[Key], theirs: Sequence[Key], rows: int) -> Flags:
    """Say which keys of rows are among others; all of shape (rows,)."""
    if not own:
        return np.zeros(rows, dtype=bool)
    (mine, other), _ = together(own, theirs)
    return np.isin(mine, other[other >= 0])


def _of_column(
    table: Table,
    stored: StoredTable,
    key: str,
    missing: Flags,
    wrong: Flags,
    clipped: ClippedValues | None,
) -> ColumnFigures:
    column = table.columns[key]
    name, family = stored.columns[position(table, stored, column.name)]
    values, written = _values(stored, name, wrong), Delimited.of(table.options)
    found: dict[str, list[int]] = {}
    lost = dict.fromkeys(written.missing)
    for value, count in values:
        words = remedy_for(column, family, value, written)
        lost |= {value.strip(): None} if words == EMPTY else {}
        found.setdefault(words, []).append(count)
    listed = ", ".join(json.dumps(each, ensure_ascii=False) for each in lost)
    remedies = [Remedy(sum(each), len(each), w.replace("{}", listed)) for w, each in found.items()]
    idle = ""
    if column.domain is None and column.bounds is None:
        idle = f"declare {propose_type(column.type)}"
        if column.sought is not None:
            idle = f"until {column.sought.statement} finds its {column.sought.what}"
    return ColumnFigures(
        column.name,
        column.type,
        "text" if stored.untyped else family,
        int(missing.sum()),
        int(wrong.sum()),
        values,
        tuple(sorted(remedies, key=lambda each: -each.rows)),
        clipped,
        idle,
        _missing_words(stored, name, written),
    )


def _missing_words(
    stored: StoredTable, name: str, written: Delimited
) -> tuple[tuple[str, int], ...]:
    """Return how NULL is written in a text: by declared words and by nothing, the former first."""
    if not written.missing or not isinstance(stored, FileTable):
        return ()
    plain = replace(stored.source, written=replace(written, missing=()))
    found = Counter[str]()
    for texts in replace(stored, source=plain).texts(name):
        gone = np.ma.getmaskarray(texts)
        found[""] += int(gone.sum())
        found.update(each for each in np.ma.getdata(texts)[~gone] if each in written.missing)
    words = [(word, found[word]) for word in (*written.missing, "") if found[word]]
    return tuple(words) if len(words) > 1 or (words and words[0][0]) else ()


def _clipped(stored: StoredTable, table: Table) -> dict[str, ClippedValues]:
    """Count the values that the bounds of columns clip, from values as they are stored."""
    bounds = {key: each for key, each in table.columns.items() if _bounds_of(each) is not None}
    if not bounds:
        return {}
    chosen = replace(table, columns=bounds, unit=Unit(), keys=())
    found = {key: np.zeros(5) for key in bounds}
    for batch in stored.read(ask_all(stored, chosen)[0], None):
        for (key, column), values in zip(bounds.items(), batch.columns, strict=True):
            low, high = _bounds_of(column) or (0.0, 0.0)
            known = ~(values.missing | values.unknown)
            numbers = np.asarray(values.numbers, dtype=np.float64)[known]
            cut = np.clip(numbers, low, high)
            facts = (numbers < low).sum(), (numbers > high).sum(), numbers.sum(), cut.sum()
            found[key] += *facts, len(numbers)
    return {
        key: ClippedValues(int(below), int(above), total / count, cut / count)
        for key, (below, above, total, cut, count) in found.items()
        if below or above
    }


def _bounds_of(column: Column) -> tuple[float, float] | None:
    if isinstance(column.domain, BoundedBins):
        return float(column.domain.edges[0]), float(column.domain.edges[-1])
    return None if column.bounds is None else (float(column.bounds[0]), float(column.bounds[1]))


def _unread(stored: StoredTable, written: Delimited) -> tuple[LostLines, ...]:
    """The lines of files that are no rows, by reason, the most frequent first."""
    first: dict[str, tuple[str, int, int]] = {}
    count = Counter[str]()
    paths = stored.source.paths if isinstance(stored, FileTable) else stored.paths
    for path in paths:
        for number, place, why in find_rejected_lines(path, written, stored.kind):
            first.setdefault(why, (os.path.basename(path), number, place))
            count[why] += 1
    return tuple(LostLines(why, n, *first[why], REMEDIES[why]) for why, n in count.most_common())


def _opened(table: Table) -> Table:
    """The table with NULL declared for every column, so that NULL is told from other values."""
    columns = {key: replace(column, null=True) for key, column in table.columns.items()}
    return replace(table, columns=columns)


def _missing(rows: Rows, key: str, column: Column) -> Flags:
    """The rows that a column leaves out for NULL; ``column`` is as the catalog declares it."""
    if column.null:
        return np.zeros(rows.count, dtype=bool)
    if column.bounds is not None:
        return np.isnan(rows.numbers[key])
    return _has_code(rows, key, column.size)


def _undeclared(rows: Rows, key: str, column: Column) -> Flags:
    """The rows that a column leaves out for values that are not declared."""
    if column.bounds is not None:
        return np.asarray(rows.numbers[key] == OUTSIDE)
    return _has_code(rows, key, column.size + (not column.null))


def _has_code(rows: Rows, key: str, code: int) -> Flags:
    if key not in rows.codes:
        return np.zeros(rows.count, dtype=bool)
    return np.asarray(rows.codes[key] == code)


MONEY = re.compile(r"[^\d.,'+-]{0,5}[+-]?[^\d.,'+-]{0,5}\d[\d.,'\s\u00a0\u202f]*[^\d.,'+-]{0,5}")
PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.I)
CLOCK = re.compile(r"([01]?\d|2[0-3]):[0-5]\d")
DAY = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
EMPTY = (
    "words for what is missing: declare missing = [{}] in the source of a CSV file, or "
    "write empty fields; null = true counts them"
)
SEPARATED = (
    "numbers with marks: declare decimal, thousands, currency or percent in the source of a CSV "
    "file, or write plain numbers, as 1234.5"
)
UNLIKE = "not written as the source declares it by decimal, thousands, currency, percent or dates"
DECIMALS = 'type = "number" with bins, or "decimal" with step, would count them'
NO_NUMBERS = 'no numbers: write empty fields, or type = "text" with other = true would count them'
DAYS = (
    'declare their form, as dates = "%d.%m.%Y" in the source of a CSV file, or write days as '
    "2024-12-31, and times after them as 08:30"
)
TIMES = 'declare their form, as dates = "%H.%M", or write times of day as 08:30'
WIDER = "a wider domain would count them"
LISTED = "listed in its domain they would count"
OTHER = "other = true would count them"
STEP = "a step that they are multiples of would count them"


FORMS: dict[str, Form] = {
    **dict.fromkeys(("integer", "number", "decimal"), "number"),
    "date": "day",
    "timestamp": "clock",
    "time": "time",
}
"""The forms of values whose spelling may be declared, by the type of their column."""


def remedy_for(column: Column, family: str, value: str, written: Delimited = PLAIN_CSV) -> str:
    """Remedies for a value that a column leaves out, in the words to type.

    Args:
        column: as the catalog declares it.
        family: of the stored column, such as "text".
        value: left out, as text; the curator alone sees it.
        written: notation of a CSV file, which says what a number in it looks like.
    """
    text = value.strip()
    if family == "text" and text.casefold() in MISSING_WORDS:
        return EMPTY
    known = spelling(FORMS[column.type], written) if column.type in FORMS else None
    if known is not None:
        text = known.plain(value)
        if not text:
            return UNLIKE
    if column.type in ("integer", "number", "decimal"):
        return _remedy_for_number(column, family, text)
    if column.type in ("date", "timestamp"):
        return WIDER if family != "text" or _is_day(text) else DAYS
    if column.type == "time":
        return WIDER if family != "text" or CLOCK.match(text) else TIMES
    if column.type == "boolean":
        return f'type = "{family}" with these in its domain would count them'
    return OTHER


def _remedy_for_number(column: Column, family: str, text: str) -> str:
    if family == "text" and not PLAIN.fullmatch(text):
        return SEPARATED if MONEY.fullmatch(text) else NO_NUMBERS
    if column.type == "integer" and not float(text).is_integer():
        return DECIMALS
    if isinstance(column.domain, Values):
        return LISTED
    if isinstance(column.domain, DecimalRange):
        first, *_, last = column.domain.representatives
        return STEP if first <= Decimal(text) <= last else WIDER
    return WIDER


def _is_day(text: str) -> bool:
    """True if a text begins with a day that there is, as DuckDB reads it."""
    found = DAY.match(text)
    try:
        return found is not None and bool(dt.date(*map(int, found.groups())))
    except ValueError:
        return False


def _values(stored: StoredTable, name: str, rows: Flags) -> tuple[tuple[str, int], ...]:
    """The values of a column in some rows, as text, with the number of rows of each."""
    if not rows.any():
        return ()
    found: Counter[str] = Counter()
    start = 0
    for texts in stored.texts(name):
        found.update(map(str, texts[rows[start : start + len(texts)]]))
        start += len(texts)
    return tuple(found.most_common())
