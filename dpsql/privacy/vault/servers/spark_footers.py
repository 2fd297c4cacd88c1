"""Footers of Parquet files, where Spark reads them: facts of columns; no value is read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.data_engine import unavailable
from dpsql.privacy.vault.servers.spark_sql import family_of

CLOCKED = ("date", "timestamp")
UNREAD = {
    "MILLIS": "milliseconds, some of which Spark cannot read",
    "NANOS": "nanoseconds, which Spark does not read",
}
"""Remarks on times in a unit of Parquet."""


def refuse_times(
    table: Table, session: SparkSession, relation: str, types: Sequence[tuple[str, str]]
) -> None:
    """Refuse declared columns with times that Spark does not read as times, as others write them.

    Of milliseconds one that is far away would make the table unreadable; nanoseconds are whole
    numbers to it. Where times are declared every file is asked; whether whole numbers are what was
    written, the first, as for the types. Raises: DataUnavailable.
    """
    named = _declared(table, types)
    times = [n for n, kind, stored in named if kind in CLOCKED or stored != "bigint"]
    numbers = [n for n, kind, stored in named if kind and n not in times and stored == "bigint"]
    if not times and not numbers:
        return
    for file in session.table(relation).inputFiles():
        said = _footer(session, file)
        for name, (stated, why) in itertools.product([*times, *numbers], UNREAD.items()):
            if f" {name} (TIMESTAMP({stated}," in said:
                problem = f"column {name!r} holds times in {why}"
                hint = "write the files anew with microseconds"
                unavailable(table.name, table.source, problem, hint)
        if not times:
            return


def _footer(session: SparkSession, file: str) -> str:
    """Read the schema of a file from its footer."""
    jvm: Any = session.sparkContext._jvm
    conf = session._jsparkSession.sessionState().newHadoopConf()
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
    source = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, conf)
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(source)
    try:
        return str(reader.getFooter().getFileMetaData().getSchema().toString())
    finally:
        reader.close()


def _declared(table: Table, types: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """The times and whole numbers of a table: what they are called, declared and stored as.

    Columns that tell units apart and are not declared have no type.
    """
    declared = {each.name.casefold(): each.type for each in table.columns.values()}
    owners = {name.casefold(): "" for name in (*table.keys, table.unit.column or "")}
    named = {**owners, **declared}
    return [
        (name, kind, stored)
        for name, stored in types
        if (kind := named.get(name.casefold())) is not None
        and (family_of(stored) == "timestamp" or stored == "bigint")
    ]
