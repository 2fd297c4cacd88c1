"""Draft a catalog for data that no catalog declares yet."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dpsql.catalog.catalog import SERVERS, Table, Unit, engine_of, kind_of
from dpsql.catalog.codebook import Codebook
from dpsql.catalog.codebooks.read import read_codebook
from dpsql.catalog.draft import VOUCHED, DraftedTable, draft
from dpsql.catalog.read_place import Place
from dpsql.catalog.read_source import read_source
from dpsql.errors import CatalogError, DataUnavailable, UsageError
from dpsql.privacy.doors.vaults import describe_data, describe_server, list_server

LABELLED = ("spss", "stata")
"""Kinds of files of data that have labels, which serve as a codebook of other files."""
FILES = "give Parquet, CSV, TSV or DuckDB files, or a folder of them"


def draft_catalog(
    *data: str | os.PathLike[str],
    folder: str | os.PathLike[str] = ".",
    blind: bool = False,
    codebook: str | os.PathLike[str] | None = None,
    **options: str,
) -> str:
    """Draft a TOML catalog for tables of data from their column names and types.

    Of files of text the first lines are looked at, for the form of the file and the types of its
    values, never for their domains or bounds.

    Args:
        *data: files, folders of files, database files with all of their tables, or of a table of a
            server its engine and name, as in postgresql:public.visits, or postgresql:public.* for
            all of a schema. A source of an installed engine is written as in a catalog,
            name://rest.
        folder: where the catalog is meant to lie, to which its paths are relative.
        blind: True to look at nothing but headers.
        codebook: describes columns, which are declared as it says: in a format of
            ``dpsql.catalog.codebooks``, or in a file of SPSS or Stata, of which labels are read.
        **options: of the source, such as dsn_env of a server.

    Raises: UsageError (E_DATA, E_POLICY) for what cannot be read as data.
    """
    found: list[DraftedTable] = []
    for each in map(str, data):
        engine, _, name = each.partition(":")
        if engine in SERVERS:
            found += _describe_server({"engine": engine, **options, "table": name})
        elif engine_of(each) is not None:
            found.append(_describe_plugged(each))
        else:
            found += _describe_data(each, Path(folder), blind)
    return draft(found, None if codebook is None else _codebook(os.fspath(codebook)))


def _codebook(path: str) -> Codebook:
    if kind_of(path) not in LABELLED:
        return read_codebook(path)
    return Codebook({each.name: each.book for each in _describe_data(path, Path(), True)})


def _describe_data(path: str, folder: Path, blind: bool) -> list[DraftedTable]:
    try:
        found = describe_data(path, blind)
    except DataUnavailable as error:
        remedy = error.hint
        if remedy is None or "`source`" in remedy:  # there is no catalog yet
            remedy = FILES
        raise UsageError(error.code, error.message, hint=remedy) from None
    return [each.seen_from(folder) for each in found]


def _describe_server(source: dict[str, str]) -> list[DraftedTable]:
    """The tables that are named: one, or with "schema.*" all of a schema."""
    schema, _, name = source["table"].rpartition(".")
    try:
        if name != "*":
            return [_describe_one(source)]
        of_schema = {**source, "table": schema}
        named, options = read_source(Place(Path("catalog")), of_schema)
        listed = list_server(Table(schema, named, Unit(), {}, options=options))
        if not listed:
            what = f"the schema {schema!r} has no table that can be read"
            raise UsageError("E_DATA", what, hint="check its name, and the rights of the role")
        return [_describe_one({**source, "table": each}, is_view) for each, is_view in listed]
    except (DataUnavailable, CatalogError) as error:
        raise UsageError(error.code, error.message, hint=error.hint) from None


def _describe_plugged(source: str) -> DraftedTable:
    """The table of a source of an installed engine."""
    name = re.split(r"[^\w]+", source)[-1] or "data"
    try:
        return DraftedTable(name, source, describe_server(Table(name, source, Unit(), {})))
    except DataUnavailable as error:
        raise UsageError(error.code, error.message, hint=error.hint) from None


def _describe_one(source: dict[str, str], is_view: bool = False) -> DraftedTable:
    said: dict[str, str | bool] = {**source, **({"view": True} if is_view else {})}
    named, options = read_source(Place(Path("catalog")), said)
    columns = describe_server(Table(source["table"], named, Unit(), {}, options=options))
    name, remark = source["table"].split(".")[-1], VOUCHED if is_view else ""
    return DraftedTable(name, said, columns, remark=remark)
