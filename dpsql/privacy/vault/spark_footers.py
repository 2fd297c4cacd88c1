"""What Parquet files say of their columns, where Spark reads them: no value is read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.data_engine import unavailable
from dpsql.privacy.vault.spark_sql import family_of

CLOCKED = ("date", "timestamp")
UNREAD = {
    "MILLIS": "milliseconds, some of which Spark cannot read",
    "NANOS": "nanoseconds, which Spark does not read",
}
"""What is said of times in a unit of Parquet."""


def refuse_times(
    table: Table, session: SparkSession, relation: str, types: Sequence[tuple[str, str]]
) -> None:
    """Refuse declared times that others wrote in units that Spark does not read as times.

    Of milliseconds one that is far away would make the table unreadable; nanoseconds are whole
    numbers to it. Raises: DataUnavailable.
    """
    times = _times(table, types)
    if not times:
        return
    jvm: Any = session.sparkContext._jvm
    conf = session._jsparkSession.sessionState().newHadoopConf()
    for file in session.table(relation).inputFiles():
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
        source = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, conf)
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(source)
        try:
            said = reader.getFooter().getFileMetaData().getSchema().toString()
        finally:
            reader.close()
        for name, (stated, why) in itertools.product(times, UNREAD.items()):
            if f" {name} (TIMESTAMP({stated}," in said:
                problem = f"column {name!r} holds times in {why}"
                hint = "write the files anew with microseconds"
                unavailable(table.name, table.source, problem, hint)


def _times(table: Table, types: Sequence[tuple[str, str]]) -> list[str]:
    """The columns of a table that may hold times, by Spark's types and by the catalog."""
    declared = {each.name.casefold(): each.type for each in table.columns.values()}
    owners = {name.casefold(): "" for name in (*table.keys, table.unit.column or "")}
    named = {**owners, **declared}
    return [
        name
        for name, stored in types
        if (kind := named.get(name.casefold())) is not None
        and (family_of(stored) == "timestamp" or (stored == "bigint" and kind in CLOCKED))
    ]
