"""Layouts of Parquet files: their columns, which differ where a log says what a version has.

A column that a file lacks has the value that the log tells of the file, else NULL: that is the rule
of the formats, for columns that were added later. Types are widened as they allow it, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsql.privacy.vault.data_engine import Unreadable, find
from dpsql.privacy.vault.files.footers import BESIDES, UNREADABLE, Footer, stored_as, top_fields
from dpsql.privacy.vault.files.footers import PLAIN as PLAIN_STORED
from dpsql.privacy.vault.files.table_folders import VersionFiles
from dpsql.records import dataclass

Columns = tuple[tuple[str, str], ...]
"""The names of columns and their DuckDB types."""
Told = tuple[tuple[int, str | None], ...]
"""The columns that a file lacks, by position, and the text of the value of all of its rows."""
ORDERS = (("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), ("FLOAT", "DOUBLE"))
"""Types of which each holds all values of those before it, exactly."""
WORST = (UNREADABLE, *reversed(BESIDES), PLAIN_STORED)
"""Kinds of storage that :mod:`footers` tells apart, first the one that hinders most."""
ANEW = "write its rows anew, and state that version"
RENAMED = "columns of its files have other names by now, which files alone do not show"
RETYPED = "columns of its files have other types by now, which files alone do not show"
FILLED = "its files lack a column that has another value than NULL there"


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The columns of some files with their ids, and how :mod:`footers` says that each is stored."""

    columns: Columns
    ids: tuple[int | None, ...]
    stored: tuple[str, ...]


def layouts_of(
    footers: Mapping[str, Footer], columns: Mapping[Footer, Columns]
) -> dict[str, FileLayout]:
    """Return the layout of every file, by its path; files that agree have the same one."""
    ids = {f: tuple(number for _, number, _ in top_fields(f)) for f in columns}
    alike: dict[tuple[Columns, tuple[int | None, ...]], list[Footer]] = {}
    for footer, found in columns.items():
        alike.setdefault((found, ids[footer]), []).append(footer)
    known = {key: FileLayout(*key, stored_as(some, key[0])) for key, some in alike.items()}
    return {path: known[columns[footer], ids[footer]] for path, footer in footers.items()}


@dataclass(frozen=True, slots=True)
class MergedColumns:
    """The columns of a version, those that are in no file last, and what each file lacks."""

    columns: Columns
    stored: tuple[str, ...]
    apart: tuple[str, ...]
    told: tuple[Told, ...]


def merged(layouts: Sequence[FileLayout], listed: VersionFiles) -> MergedColumns:
    """Return the columns of a version whose files have ``layouts``, in the order of its files.

    Raises: Unreadable where a file says something else than its columns seem to.
    """
    some = set(layouts)
    for layout in some:
        _check_ids(layout, listed)
    inside: dict[str, tuple[str, str]] = {}
    for name in listed.families:
        places = [(each, place) for each in some if (place := find(each.columns, name)) is not None]
        if places:
            types = {each.columns[place][1] for each, place in places}
            stored = {each.stored[place] for each, place in places}
            inside[name] = widest(types), next(how for how in WORST if how in stored)
    apart = tuple(name for name in listed.families if name not in inside)
    names = [*inside, *apart]
    lacking = {
        each: [i for i, n in enumerate(names) if find(each.columns, n) is None] for each in some
    }
    told = tuple(
        tuple((i, known.get(names[i])) for i in lacking[layout])
        for layout, known in zip(layouts, listed.told, strict=True)
    )
    for lacks, known in zip(told, listed.told, strict=True):
        if any(names[i] in listed.filled and names[i] not in known for i, _ in lacks):
            raise Unreadable(FILLED, ANEW)
        if any(
            inside.get(names[i], ("", ""))[0] == "BLOB" and text is not None for i, text in lacks
        ):
            raise Unreadable(RETYPED, ANEW)
    columns = (
        *((name, kind) for name, (kind, _) in inside.items()),
        *((n, "VARCHAR") for n in apart),
    )
    how = (*(stored for _, stored in inside.values()), *(PLAIN_STORED for _ in apart))
    return MergedColumns(columns, how, apart, told)


def _check_ids(layout: FileLayout, listed: VersionFiles) -> None:
    """Refuse a file in which a column has another name than in the version. Raises: Unreadable."""
    numbers = {*listed.ids.values()}
    for (name, _), said in zip(layout.columns, layout.ids, strict=True):
        number = listed.unnumbered.get(name) if said is None else said
        if listed.ids.get(name, number) != number or (name not in listed.ids and number in numbers):
            raise Unreadable(RENAMED, ANEW)


def widest(types: set[str]) -> str:
    """Return the type that holds all values of some types, exactly. Raises: Unreadable.

    >>> widest({"INTEGER", "BIGINT"}), widest({"DECIMAL(9,2)", "DECIMAL(18,2)"})
    ('BIGINT', 'DECIMAL(18,2)')
    """
    if len(types) == 1:
        return next(iter(types))
    for order in ORDERS:
        if types <= {*order}:
            return max(types, key=order.index)
    parts = {each: each.removesuffix(")").partition(",") for each in types}
    scales = {scale for _, _, scale in parts.values()}
    if len(scales) == 1 and all(each.startswith("DECIMAL(") for each in types):
        return max(types, key=lambda each: int(parts[each][0].removeprefix("DECIMAL(")))
    raise Unreadable(RETYPED, ANEW)
