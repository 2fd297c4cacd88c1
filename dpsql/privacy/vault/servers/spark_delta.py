"""One version of a Delta table in Spark, without Delta: its files are a view of every session.

The log is read by :mod:`dpsql.privacy.vault.files.delta`, rows by Spark's own reader of Parquet,
with the schema of the log: a column that is in no file of a version is NULL there, as Delta says.
"""

from __future__ import annotations

import hashlib
import json

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.files.delta import DeltaVersion, find_delta
from dpsql.privacy.vault.files.refused_types import refuse_apart
from dpsql.privacy.vault.servers.spark_sql import plain_path
from dpsql.records import dataclass


@dataclass(frozen=True, slots=True)
class DeltaView:
    """The name of a version in the sessions that it is shown to."""

    name: str
    found: DeltaVersion

    def show(self, session: SparkSession) -> None:
        """Make it a view of a session; nothing is read."""
        whole = StructType.fromJson(json.loads(self.found.schema))
        fields = [each for each in whole.fields if each.name not in self.found.apart]
        files = session.read.schema(StructType(fields)).parquet(*map(plain_path, self.found.paths))
        files.createOrReplaceTempView(self.name)


def view_of_delta(table: Table, folder: str) -> DeltaView:
    """Return the version that a catalog states. Raises: DataUnavailable (E_DATA)."""
    version = table.option("version") or ""
    found = find_delta(folder, version, table.name)
    refuse_apart(found.apart, table)
    digest = hashlib.sha256(f"{folder}|{version}".encode()).hexdigest()
    return DeltaView(f"dpsql_delta_{digest[:16]}", found)
