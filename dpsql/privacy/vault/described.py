"""Descriptions of data that no catalog declares yet: tables, columns, types; no value."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from dpsql.catalog.draft import VOUCHED, DraftedTable
from dpsql.catalog.guess import guess_family
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import Unreadable, unavailable
from dpsql.privacy.vault.data_files import READABLE, find_files, is_data_file
from dpsql.privacy.vault.database import Relation, list_relations
from dpsql.privacy.vault.delta import is_delta, newest_version
from dpsql.privacy.vault.footers import PLAIN, UNREADABLE
from dpsql.privacy.vault.sniffed import sniff
from dpsql.privacy.vault.source import Source, connect, family, open_source
from dpsql.records import replace


def describe_data(path: str, blind: bool = False) -> list[DraftedTable]:
    """Return the tables that a file, a database file, a glob or a folder of files holds.

    Files of a folder that have the same columns are one table. Files of text are looked at for the
    form of their values, but for a ``blind`` draft. Raises: DataUnavailable (E_DATA).
    """
    if is_delta(path):
        return [_describe_delta(path)]
    if os.path.isdir(path):
        return _describe_folder(path, blind)
    kind, paths = find_files(path, Path(path).name)
    if kind == "duckdb":
        return _describe_database(path, paths[0])
    return [_describe_text(path, paths[0], blind) if kind == "csv" else _describe_file(path)]


def _describe_folder(path: str, blind: bool) -> list[DraftedTable]:
    inside = sorted(os.path.join(path, name) for name in os.listdir(path) if is_data_file(name))
    if not inside:
        unavailable(Path(path).name, path, "the folder holds no Parquet, CSV, TSV or DuckDB file")
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


def _describe_delta(path: str) -> DraftedTable:
    name, version = Path(path).resolve().name, newest_version(path)
    with connect() as connection:
        source = open_source(connection, path, name, version=str(version))
    return DraftedTable(name, {"delta": path, "version": version}, _columns(source))


def _form(table: DraftedTable) -> dict[str, Any]:
    """Return the words for the form of a file."""
    said = {} if isinstance(table.source, str) else table.source
    return {key: each for key, each in said.items() if key != "file"}


def _describe_file(path: str) -> DraftedTable:
    with connect() as connection:
        source = open_source(connection, path, Path(path).name)
    return DraftedTable(Path(path).name.split(".")[0], path, _columns(source))


def _describe_text(path: str, first: str, blind: bool) -> DraftedTable:
    """A table of delimited text as its first file looks."""
    try:
        found = sniff(first, blind)
    except Unreadable as error:
        unavailable(Path(path).name, path, error.problem, error.hint)
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
