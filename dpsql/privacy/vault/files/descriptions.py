"""Descriptions of data that no catalog declares yet: tables, columns, types; no value."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.catalog.catalog import is_stored, kind_of
from dpsql.catalog.codebook import BookColumn
from dpsql.catalog.column_guesses import guess_family
from dpsql.catalog.delimited import PLAIN as PLAIN_TEXT
from dpsql.catalog.draft import VOUCHED, DraftedTable
from dpsql.errors import DataUnavailable, is_interrupt
from dpsql.privacy.vault.data_engine import DamagedError, Unreadable, unavailable
from dpsql.privacy.vault.files.arrow_rows import FORMATS, decoded, list_tables, open_rows
from dpsql.privacy.vault.files.data_files import (
    NO_ROOM,
    READABLE,
    find_files,
    find_source,
    is_data_file,
)
from dpsql.privacy.vault.files.database import Relation, list_relations
from dpsql.privacy.vault.files.delimited_form import MOST as LOOKED
from dpsql.privacy.vault.files.delimited_form import sniff, sniff_rows
from dpsql.privacy.vault.files.footers import PLAIN, UNREADABLE
from dpsql.privacy.vault.files.partitions import partitioned_names
from dpsql.privacy.vault.files.source import Source, connect, family, open_source
from dpsql.privacy.vault.files.stores import StoredObject
from dpsql.privacy.vault.files.table_folders import (
    LocalFolder,
    StoredFolder,
    TableFolder,
    Version,
)
from dpsql.privacy.vault.files.table_logs import FORMS as LOGS
from dpsql.privacy.vault.files.table_logs import log_in, log_of
from dpsql.records import replace


def describe_data(path: str, blind: bool = False) -> list[DraftedTable]:
    """Return the tables that a file, a database file, a glob or a folder of files holds.

    Files of a folder that have the same columns are one table. Files of text are looked at for the
    form of their values, but for a ``blind`` draft. Raises: DataUnavailable (E_DATA).
    """
    if is_stored(path):
        return _describe_stored(path, blind)
    form = log_in(path)
    if form is not None:
        return [_describe_version(path, form, LocalFolder(path))]
    if os.path.isdir(path):
        partitioned = _describe_partitioned(path, blind)
        return _describe_folder(path, blind) if partitioned is None else [partitioned]
    kind, paths = find_files(path, Path(path).name)
    if kind == "duckdb":
        return _describe_database(path, paths[0])
    if kind in FORMATS and FORMATS[kind].untyped:
        return _describe_untyped(path, kind, paths[0], blind)
    return [_describe_text(path, paths[0], blind) if kind == "csv" else _describe_file(path)]


def _describe_stored(path: str, blind: bool) -> list[DraftedTable]:
    """The table that an address, a pattern or a folder of a store names."""
    partitions: tuple[str, ...] = ()
    try:
        if kind_of(path) is None:
            folder = StoredFolder(path)
            inside, form = folder.objects, log_of(folder.names())
            if form is not None:
                return [_describe_version(folder.declared, form, folder)]
            path = _pattern_of(path.rstrip("/"), inside)
            all_names = {partitioned_names("", each) for each in inside if is_data_file(each)}
            partitions = all_names.pop() if len(all_names) == 1 else ()
        found = find_source(path, Path(path).name)
    except Unreadable as error:
        unavailable(Path(path).name, path, error.problem, error.hint)
    except OSError:
        unavailable(Path(path).name, path, "its objects cannot be copied to this machine", NO_ROOM)
    name = next(each for each in reversed(path.split("/")) if "*" not in each)
    described = (
        _describe_untyped(path, found.kind, found.paths[0], blind)
        if found.kind in FORMATS and FORMATS[found.kind].untyped
        else [_describe_text(path, found.paths[0], blind)]
        if found.kind == "csv"
        else [_describe_file(path)]
    )
    if len(described) != 1:
        return described
    (first,) = described
    first = _with_partitions(first, path, partitions) if partitions else first
    return [replace(first, name=name.split(".")[0])]


def _pattern_of(folder: str, inside: Mapping[str, StoredObject]) -> str:
    """Return the pattern of the files of data below a folder, which have one ending."""
    named = [name for name in inside if is_data_file(name)]
    endings = {"".join(Path(name).suffixes) for name in named}
    if not named:
        raise Unreadable("the folder holds no file of data", "name a file or a folder of files")
    if len(endings) > 1:
        hint = f'name those of one kind, as "{folder}/*{min(endings)}"'
        raise Unreadable(f"the folder holds files of {len(endings)} kinds", hint)
    return f"{folder}/{'**/' * any('/' in name for name in named)}*{endings.pop()}"


def _describe_version(path: str, form: str, folder: TableFolder) -> DraftedTable:
    """The newest version of a table with a log, which says types of columns that are in no file."""
    name = Path(path).resolve().name if isinstance(folder, LocalFolder) else path.split("/")[-1]
    number = LOGS[form].newest(folder, name)
    version = Version(form, str(number))
    found = find_source(path, name, version)
    with connect() as connection:
        source = open_source(connection, path, name, version=version, found=found)
    families = {} if found.listed is None else found.listed.families
    apart = {each: families[each] for each in source.apart}
    columns = [(each, apart.get(each, kind)) for each, kind in _columns(source)]
    return DraftedTable(name, {form: path, "version": number}, columns)


def _describe_folder(path: str, blind: bool) -> list[DraftedTable]:
    inside = sorted(os.path.join(path, name) for name in os.listdir(path) if is_data_file(name))
    if not inside:
        unavailable(Path(path).name, path, "the folder holds no file of data")
    found = [table for each in inside for table in describe_data(each, blind)]
    first = found[0]
    endings = {"".join(Path(each).suffixes) for each in inside}
    if (
        len(found) > 1
        and len(endings) == 1
        and all(each.columns == first.columns and _form(each) == _form(first) for each in found)
    ):
        whole = os.path.join(path, f"*{endings.pop()}")
        source = {"file": whole, **_form(first)} if _form(first) else whole
        return [replace(first, name=Path(path).resolve().name, source=source)]
    return found


def _describe_partitioned(path: str, blind: bool) -> DraftedTable | None:
    """The table of a folder in the layout of Hive; None where it is another folder."""
    inside = (os.path.join(at, name) for at, _, names in os.walk(path) for name in names)
    files = sorted(each for each in inside if is_data_file(os.path.basename(each)))
    names = {partitioned_names(path, each) for each in files}
    endings = {_ending(each) for each in files}
    if len(names) != 1 or names == {()} or len(endings) != 1:
        return None
    (partitions,) = names
    (first, *_) = describe_data(files[0], blind)
    whole = os.path.join(path, *("*" for _ in partitions), f"*{endings.pop()}")
    return replace(_with_partitions(first, whole, partitions), name=Path(path).resolve().name)


def _with_partitions(table: DraftedTable, whole: str, names: Sequence[str]) -> DraftedTable:
    """The same with columns that folders tell, of all files of a pattern."""
    said = {"file": whole, **_form(table), "partitions": [*names]}
    columns = [*table.columns, *((each, guess_family(each)) for each in names)]
    told = (*table.told, f"folders for {', '.join(names)}, whose types are guessed from names")
    return replace(table, source=said, columns=columns, told=told, book={})


def _ending(path: str) -> str:
    """The end of a name by which a file is of its kind."""
    suffixes = Path(path).suffixes
    return next(end for n in (1, 2) if kind_of(f"x{(end := ''.join(suffixes[-n:]))}"))


def _form(table: DraftedTable) -> dict[str, Any]:
    """Return the words for the form of a file."""
    said = {} if isinstance(table.source, str) else table.source
    return {key: each for key, each in said.items() if key != "file"}


def _describe_file(path: str) -> DraftedTable:
    with connect() as connection:
        source = open_source(connection, path, Path(path).name)
    book: Mapping[str, BookColumn] = {}
    if FORMATS.get(source.kind) == FORMATS["spss"]:
        from dpsql.privacy.vault.formats.stat_files import read_book  # needs pyreadstat

        book = read_book(source.paths[0])
    return DraftedTable(Path(path).name.split(".")[0], path, _columns(source), book=book)


def _describe_text(path: str, first: str, blind: bool) -> DraftedTable:
    """A table of delimited text as its first file looks."""
    try:
        found = sniff(first, blind)
    except Unreadable as error:
        unavailable(Path(path).name, path, error.problem, error.hint)
    except DamagedError as error:
        unavailable(Path(path).name, path, str(error), error.hint)
    except OSError:
        unavailable(Path(path).name, path, "not a readable csv file", READABLE["csv"])
    said = found.written.said()
    with connect() as connection:
        source = open_source(connection, path, Path(path).name, written=found.written)
    looks = {name: (family, look) for name, family, look in found.columns}
    columns = [(name, looks.get(name, (guess_family(name), ""))[0]) for name, _ in source.columns]
    return DraftedTable(
        Path(path).name.split(".")[0],
        {"file": path, **said} if said else path,
        columns,
        untyped=True,
        looks=None if blind else {name: look for name, (_, look) in looks.items()},
        told=found.told,
    )


def _describe_untyped(path: str, kind: str, first: str, blind: bool) -> list[DraftedTable]:
    """The tables of a file whose columns have no types, as the values of the first rows look."""
    try:
        tables = list_tables(kind, first)
        found = [_look_at(path, kind, first, each, len(tables) > 1, blind) for each in tables]
    except Unreadable as error:
        unavailable(Path(path).name, path, error.problem, error.hint)
    except OSError:
        unavailable(Path(path).name, path, f"not a readable {kind} file", READABLE[kind])
    return found


def _look_at(
    path: str, kind: str, first: str, table: str, is_named: bool, blind: bool
) -> DraftedTable:
    written = PLAIN_TEXT
    if kind == "json" and blind:
        raise Unreadable("lines of JSON name their columns themselves", "draft without --blind")
    if kind == "json":
        from dpsql.privacy.vault.formats.json_lines import names_of_lines  # needs pyarrow

        written = replace(written, header=names_of_lines(first))
    rows = open_rows(kind, first, table, written)
    names = rows.schema.names
    said: dict[str, Any] = {"file": path, **({"table": table} if is_named else {})}
    name = table if is_named else Path(path).name.split(".")[0]
    if blind:
        columns = [(each, guess_family(each)) for each in names]
        return DraftedTable(name, said if is_named else path, columns, untyped=True)
    try:
        batch = next(rows.batches(names), None)
    except Exception as error:  # each library has errors of its own for a damaged file
        if isinstance(error, Unreadable | OSError) or is_interrupt(error):
            raise
        raise OSError("its rows cannot be read") from None
    values = [] if batch is None else [batch.column(i).slice(0, LOOKED) for i in range(len(names))]
    texts = [[decoded(each) for each in column.cast("binary").to_pylist()] for column in values]
    found = sniff_rows(names, list(zip(*texts, strict=True)))
    said |= found.written.said()
    return DraftedTable(
        name,
        said if len(said) > 1 else path,
        [(each, family) for each, family, _ in found.columns],
        untyped=True,
        looks={each: look for each, _, look in found.columns},
        told=found.told,
    )


def _columns(source: Source) -> list[tuple[str, str]]:
    """The columns of files, with what hinders reading them in place of their family."""
    stored = source.stored or [PLAIN] * len(source.columns)
    return [
        (name, "unreadable" if how == UNREADABLE else family(each))
        for (name, each), how in zip(source.columns, stored, strict=True)
    ]


def _describe_database(path: str, real: str) -> list[DraftedTable]:
    problem = "not a readable duckdb file, or locked by another process"
    try:
        with connect() as connection:
            connection.execute("ATTACH ? AS source (READ_ONLY)", [real])
            relations = list_relations(connection)
    except (OSError, duckdb.Error):
        unavailable(Path(path).name, path, problem)
    found = list(_describe_relations(path, relations))
    if not found:
        unavailable(Path(path).name, path, "the DuckDB file holds no table that can be read")
    return found


def _describe_relations(path: str, relations: list[Relation]) -> Iterator[DraftedTable]:
    for relation in relations:
        try:
            with connect() as connection:
                source = open_source(connection, path, relation.name, relation.shown, True)
        except DataUnavailable:  # a view over what is not there any more
            continue
        columns = [(name, family(stored)) for name, stored in source.columns]
        said: dict[str, str | bool] = {"file": path, "table": relation.shown}
        remark = ""
        if relation.is_view:
            said["view"] = True
            remark = VOUCHED
        is_plain = relation.schema == "main" and not relation.is_view
        yield DraftedTable(relation.name, path if is_plain else said, columns, remark=remark)
