"""Descriptions of data that no catalog declares yet: tables, columns, types; no value."""

from __future__ import annotations

import csv
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from dpsql.catalog.draft import VOUCHED, DraftedTable
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import unavailable
from dpsql.privacy.vault.data_files import find_files, is_data_file
from dpsql.privacy.vault.database import Relation, list_relations
from dpsql.privacy.vault.delta import is_delta, newest_version
from dpsql.privacy.vault.footers import PLAIN, UNREADABLE
from dpsql.privacy.vault.lines import other_delimiter
from dpsql.privacy.vault.source import Source, connect, family, open_source


def describe_data(path: str) -> list[DraftedTable]:
    """Return the tables that a file, a database file, a glob or a folder of files holds.

    Files of a folder that have the same columns are one table. Raises: DataUnavailable (E_DATA).
    """
    if is_delta(path):
        return [_describe_delta(path)]
    if os.path.isdir(path):
        return _describe_folder(path)
    kind, paths = find_files(path, Path(path).name)
    return _describe_database(path, paths[0]) if kind == "duckdb" else [_describe_file(path)]


def _describe_folder(path: str) -> list[DraftedTable]:
    inside = sorted(os.path.join(path, name) for name in os.listdir(path) if is_data_file(name))
    if not inside:
        unavailable(Path(path).name, path, "the folder holds no Parquet, CSV, TSV or DuckDB file")
    found = [table for each in inside for table in describe_data(each)]
    first = found[0]
    endings = {"".join(Path(each).suffixes) for each in inside}
    if (
        len(found) > 1
        and len(endings) == 1
        and all(each.columns == first.columns for each in found)
    ):
        whole = os.path.join(path, f"*{endings.pop()}")
        return [DraftedTable(Path(path).resolve().name, whole, first.columns, first.untyped)]
    return found


def _describe_delta(path: str) -> DraftedTable:
    name, version = Path(path).resolve().name, newest_version(path)
    with connect() as connection:
        source = open_source(connection, path, name, version=str(version))
    return DraftedTable(name, {"delta": path, "version": version}, _columns(source))


def _describe_file(path: str) -> DraftedTable:
    with connect() as connection:
        source = open_source(connection, path, Path(path).name)
    name = Path(path).name.split(".")[0]
    return DraftedTable(name, path, _columns(source), source.kind == "csv", _remark(source))


def _columns(source: Source) -> list[tuple[str, str]]:
    """The columns of files, with what hinders reading them in place of their family."""
    stored = source.stored or [PLAIN] * len(source.columns)
    return [
        (name, "unreadable" if how == UNREADABLE else family(each))
        for (name, each), how in zip(source.columns, stored, strict=True)
    ]


def _remark(source: Source) -> str:
    """Name the delimiter of a CSV file that has another one."""
    if source.kind != "csv" or len(source.columns) > 1:
        return ""
    found = other_delimiter(source.columns[0][0])
    if found is None:
        return ""
    return (
        f"The header seems to be separated by {found}; dpsql reads commas (.csv) and tabs (.tsv):"
        " write the file anew before it is declared."
    )


def _describe_database(path: str, real: str) -> list[DraftedTable]:
    problem = "not a readable duckdb file, or locked by another process"
    try:
        with connect() as connection:
            connection.execute("ATTACH ? AS source (READ_ONLY)", [real])
            relations = list_relations(connection)
    except (OSError, EOFError, csv.Error, zlib.error, duckdb.Error):
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
