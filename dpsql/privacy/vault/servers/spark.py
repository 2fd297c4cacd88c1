"""The engine of Spark: tables and files of a cluster, counted where they are.

The schema is read from the catalog of Spark, or from the files themselves; no value is, before rows
are. A view is refused unless the catalog declares that it is one: what it joins is not known.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import RDD, StorageLevel
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.data_engine import VERSION, Batch, RequestedColumn, Values64, unavailable
from dpsql.privacy.vault.dialect import Dialect
from dpsql.privacy.vault.servers.spark_delta import DeltaView, view_of_delta
from dpsql.privacy.vault.servers.spark_footers import refuse_times
from dpsql.privacy.vault.servers.spark_session import session_for, told
from dpsql.privacy.vault.servers.spark_sql import DIALECT, PATTERN, family_of, plain_path
from dpsql.records import dataclass

FORMATS = ("parquet", "orc", "delta")
PADDED = "__CHAR_VARCHAR_TYPE_STRING"
"""The key under which a schema notes that a text is padded with blanks."""

_kept = itertools.count()


@dataclass(frozen=True, slots=True)
class SparkSchema:
    """A table as Spark describes it: its name after FROM, its place, files and columns.

    ``is_parquet`` says that files of Parquet hold its rows, ``version`` which of a Delta table.
    """

    relation: str
    place: str
    files: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    is_parquet: bool
    version: DeltaView | None = None


class SparkEngine:
    """Opens tables of Spark."""

    version = VERSION

    def open(self, table: Table) -> SparkTable:
        path = table.option("path")
        if path is not None:
            _relation_of_files(table, path)  # what is wrong with it needs no Spark
        session = session_for(table)
        schema = told(table, lambda: _describe(table, session))
        if schema.is_parquet:
            told(table, lambda: refuse_times(table, session, schema.relation, schema.types))
        return SparkTable(table, schema)

    def tables(self, schema: Table) -> list[tuple[str, bool]]:
        """The tables of a database of the session, by name, and whether each is a view."""
        name = schema.option("table") or ""
        session = session_for(schema)
        found = told(schema, lambda: session.catalog.listTables(name))
        listed = [each for each in found if not each.isTemporary]
        return [(f"{name}.{each.name}", each.tableType == "VIEW") for each in listed]


ENGINE = SparkEngine()


@dataclass(frozen=True, slots=True)
class SparkTable:
    """A table of Spark; see :class:`dpsql.privacy.vault.servers.counter.CountingTable`."""

    declared: Table
    schema: SparkSchema
    kind = "spark"
    table = ""
    untyped = False

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([self.schema.place, *self.schema.files]))

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return self.schema.types

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, family_of(stored)) for name, stored in self.schema.types)

    def fingerprint(self) -> str:
        session = self._session()
        found = told(self.declared, lambda: _describe(self.declared, session))
        return hashlib.sha256(repr((found.place, found.types)).encode()).hexdigest()

    def read(self, asked: Sequence[RequestedColumn], unit: str | None) -> Iterator[Batch]:
        sent = SentRows.of(self.schema, asked, unit)
        for columns in _fetched(self._session(), sent.select):
            yield sent.batch(columns)

    def texts(self, column: str) -> Iterator[npt.NDArray[np.object_]]:
        select = f"SELECT CAST({DIALECT.identifier(column)} AS string) FROM {self.schema.relation}"
        for (texts,) in _fetched(self._session(), select):
            yield np.ma.array(_filled(texts, ""), mask=_flags(texts.is_null()))

    def open_counter(self) -> SparkCounter:
        return SparkCounter(self, self._session())

    def _session(self) -> SparkSession:
        session = session_for(self.declared)
        if self.schema.version is not None:
            self.schema.version.show(session)
        return session


def _describe(table: Table, session: SparkSession) -> SparkSchema:
    """Read what Spark says of a table, and nothing of its rows. Raises: DataUnavailable."""
    folder = table.option("delta")
    if folder is not None:
        version = view_of_delta(table, folder)
        version.show(session)
        frame = session.table(version.name)
        files = _files(frame)
        if files != version.found.paths:
            raise ValueError("Spark reads other files than the log names")
        return SparkSchema(version.name, _place(folder), files, _types(frame), True, version)
    path = table.option("path")
    if path is not None:
        relation = _relation_of_files(table, path)
        kind = table.option("format") or "parquet"
        if kind == "delta":
            session.read.format(kind).load(path)  # says whether this Spark has Delta
        frame = session.table(relation)
        return SparkSchema(relation, _place(path), _files(frame), _types(frame), kind != "orc")
    names = (table.option("table") or "").split(".")
    relation = ".".join(map(DIALECT.identifier, names))
    found = session.catalog.getTable(relation)
    if found.tableType in ("VIEW", "TEMPORARY") and table.option("view") is None:
        problem = "it is a view, which may join rows; view = true vouches for it"
        unavailable(table.name, table.source, problem)
    full = [found.catalog or "", *(found.namespace or []), found.name]
    frame = session.table(relation)
    details = _details(session, relation)
    place, is_parquet = details.get("Location"), _is_parquet(details)
    if place is None:
        place = f"spark://{'.'.join(full)}"
    elif not _exists(session, place):
        unavailable(table.name, table.source, "the files of the table have gone")
    elif PATTERN & {*unquote(place)}:
        problem = "the name of its folder is a pattern, and Spark reads all that matches it"
        unavailable(table.name, table.source, problem, "read the files by path, or move them")
    return SparkSchema(relation, _place(place), _files(frame), _types(frame), is_parquet)


def _relation_of_files(table: Table, path: str) -> str:
    kind = table.option("format") or "parquet"
    if kind not in FORMATS:
        problem = f"files of format {kind!r} have no schema that Spark can read"
        unavailable(table.name, table.source, problem, f"one of {', '.join(FORMATS)}")
    if "://" not in path and not os.path.isabs(path):
        problem = "its path depends on the working directory"
        unavailable(table.name, table.source, problem, "give the whole path, or a URI")
    if kind == "delta" and PATTERN & {*path}:
        problem = f"its path has one of {' '.join(sorted(PATTERN))}, which may be a pattern"
        hint = 'source = { engine = "spark", delta = "folder", version = 3 } takes any name'
        unavailable(table.name, table.source, problem, hint)
    return f"{kind}.{DIALECT.identifier(path if kind == 'delta' else plain_path(path))}"


def _is_parquet(details: dict[str, str]) -> bool:
    """True if files of Parquet hold the rows of a table, as far as its details say.

    >>> _is_parquet({"Provider": "delta"}), _is_parquet({"Provider": "orc"})
    (True, False)
    """
    stored = f"{details.get('Provider')} {details.get('Serde Library')}".casefold()
    return "parquet" in stored or "delta" in stored


def _details(session: SparkSession, relation: str) -> dict[str, str]:
    """Return Spark's details of a table beside its columns: its place, and its format."""
    rows = session.sql(f"DESCRIBE TABLE EXTENDED {relation}").collect()
    pairs = [(row[0], row[1]) for row in rows]
    starts = [i for i, (name, _) in enumerate(pairs) if name.startswith("# Detailed")]
    return dict(pairs[starts[-1] :]) if starts else {}


def _exists(session: SparkSession, uri: str) -> bool:
    """True if there is a folder: Spark takes a table without one for empty."""
    jvm: Any = session.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(uri)
    files = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
    return bool(files.exists(path))


def _place(uri: str) -> str:
    """The real path of what is on this machine; a URI as it is.

    >>> _place("file:///a%20b"), _place("s3://bucket/visits/")
    ('/a b', 's3://bucket/visits')
    """
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return os.path.realpath(unquote(parts.path))
    return uri.rstrip("/") if parts.scheme else os.path.realpath(uri)


def _files(frame: DataFrame) -> tuple[str, ...]:
    """The files on this machine, which other engines may read as well."""
    return tuple(sorted(_place(each) for each in frame.inputFiles() if each.startswith("file:")))


def _types(frame: DataFrame) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, _type(each)) for each in frame.schema.fields)


def _type(field: StructField) -> str:
    is_padded = str(field.metadata.get(PADDED, "")).startswith("char")
    return "char" if is_padded else field.dataType.simpleString()


@dataclass(frozen=True, slots=True)
class SentRows:
    """The values sent of each row, with whether they are missing, then owners; as a batch."""

    select: str
    asked: Sequence[RequestedColumn]
    owners: Sequence[type]
    by_unit: bool

    @classmethod
    def of(
        cls, schema: SparkSchema, asked: Sequence[RequestedColumn], unit: str | None
    ) -> SentRows:
        """Write the SELECT: two columns for every value, and two for every key and the unit."""
        types = dict(schema.types)
        plain = [each for each in asked if each.form != "key"]
        listed: list[str] = []
        for each in plain:
            column = f"t.{DIALECT.identifier(each.column)}"
            found = DIALECT.fetch(each, column, types[each.column])
            listed += [found.value, found.missing]
        owners: list[type] = []
        named = [each.column for each in asked if each.form == "key"]
        for name in [*named, *([] if unit is None else [unit])]:
            owner = DIALECT.owner(f"t.{DIALECT.identifier(name)}", types[name])
            owners.append(object if owner.value == owner.name else np.int64)
            listed += [f"CASE WHEN {owner.known} THEN {owner.value} END", owner.known]
        select = f"SELECT {', '.join(listed) or 'true'} FROM {schema.relation} AS t"
        return cls(select, plain, owners, unit is not None)

    def batch(self, found: Sequence[pa.Array]) -> Batch:
        """Return the columns of some rows as arrays.

        Args:
            found: the columns of the SELECT in order, (rows,) each.
        """
        rows = len(found[0])
        pairs = zip(found[::2], found[1::2], self.asked, strict=False)
        columns = [_values(values, missing, each) for values, missing, each in pairs]
        owned: list[tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]] = []
        first = 2 * len(columns)
        for i, kind in enumerate(self.owners):
            values, known = found[first + 2 * i : first + 2 * i + 2]
            filled: npt.NDArray[Any] = _filled(values, "" if kind is object else 0).astype(kind)
            owned.append((filled, _flags(known)))
        if not self.by_unit:
            return Batch(rows, columns, keys=owned)
        *keys, (units, has_unit) = owned
        return Batch(rows, columns, units, has_unit, keys)


def _values(values: pa.Array, missing: pa.Array, asked: RequestedColumn) -> Values64:
    """Values, missing ones, and those that are unknown: NULL whatever is stored."""
    kind: type[np.float64 | np.int64] = np.float64 if asked.form == "number" else np.int64
    is_missing = _flags(missing)
    numbers: Any = _filled(values, 0).astype(kind)
    return Values64(numbers, is_missing, _flags(values.is_null()) & ~is_missing)


def _filled(values: pa.Array, nothing: str | int) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = values.fill_null(nothing).to_numpy(zero_copy_only=False)
    return found


def _flags(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.array(values.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _fetched(session: SparkSession, select: str) -> Iterator[list[pa.Array]]:
    """Yield the rows of a SELECT as columns, a few thousand at a time, one share after the other.

    ``toArrow`` would hold all of them here.
    """
    frame = session.sql(select)
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    batches = frame._jdf.toArrowBatchRdd().toJavaRDD()
    rdd: RDD[bytes] = RDD(batches, session.sparkContext, NoOpSerializer())
    for each in rdd.toLocalIterator():
        found = pa.ipc.read_record_batch(pa.py_buffer(each), schema)
        if found.num_rows:
            yield found.columns


def _detached(session: SparkSession, frame: DataFrame) -> DataFrame:
    """The rows of a frame as they are planned now, whatever is written to its tables later.

    Spark refreshes what is cached of a table when it writes to it, and takes equal plans for each
    other's cache; neither is one snapshot.
    """
    rows, jvm_session = frame._jdf.queryExecution().toRdd(), session._jsparkSession
    return DataFrame(jvm_session.internalCreateDataFrame(rows, frame._jdf.schema(), False), session)


class SparkCounter:
    """Counts rows of one table in a session of its own, whose codes are cached on the cluster.

    See :class:`dpsql.privacy.vault.servers.counter.Counter`.
    """

    def __init__(self, table: SparkTable, session: SparkSession) -> None:
        self._table = table
        self._session = session
        self._frames: list[tuple[str, DataFrame]] = []

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    @property
    def relation(self) -> str:
        return self._table.schema.relation

    def keep(self, select: str) -> str | None:
        name = f"dpsql_kept_{next(_kept)}"
        frame = _detached(self._session, self._session.sql(select))
        self._frames.append((name, frame.persist(StorageLevel.MEMORY_AND_DISK)))
        frame.count()
        frame.createOrReplaceTempView(name)
        return name

    def rows(self, select: str) -> Iterator[tuple[int, ...]]:
        yield from map(tuple, self._session.sql(select).collect())

    def close(self) -> None:
        frames, self._frames = self._frames, []
        for name, frame in frames:
            try:
                frame.unpersist()
                self._session.catalog.dropTempView(name)
            except (PySparkException, Py4JError, OSError):
                pass  # a context that has stopped keeps nothing
