"""A session of Spark: found or made, set and checked; what its driver says is withheld."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dpsql.catalog.catalog import Table
from dpsql.forks import fresh
from dpsql.privacy.vault.data_engine import unavailable
from dpsql.settings.machine import memory

T = TypeVar("T")

STARTED_WITH = {
    "spark.app.name": "dpsql",
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a driver that is started here: what it logs of a failure may hold values."""
DRIVER_MEMORY = "SPARK_DRIVER_MEMORY"
"""The variable that says what memory a driver may have, unless a file of Spark's says it."""
LOCAL_PART = 4
"""One in this many bytes of the machine is for a driver that keeps the rows itself: Spark would
give it a gigabyte, which the codes of 1e8 rows do not fit into."""
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.subexpressionElimination.skipForShortcutExpr": "true",
    "spark.sql.runSQLOnFiles": "true",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
"""Settings that are set, and checked: whatever the cluster or the session that is found says of it.

Overflows are errors and no other numbers; files that cannot be read are an error and not a smaller
count; the names of folders do not decide on types; nothing behind a condition is worked out first;
a time of day, or one in nanoseconds, that nobody asks for does not make a file unreadable.
"""
STRANGE = "a column has a type that Spark does not read, as float16 and decimals of 50 digits"
DAMAGED = "a file of it is damaged, is none of its format, or has a type that Spark does not read"
TOLD = {
    "TABLE_OR_VIEW_NOT_FOUND": "there is no such table",
    "SCHEMA_NOT_FOUND": "there is no such table",
    "CATALOG_NOT_FOUND": "there is no such table",
    "REQUIRES_SINGLE_PART_NAMESPACE": "there is no such table",
    "PARSE_SYNTAX_ERROR": "its table is no name of a table",
    "PATH_NOT_FOUND": "there is no such file",
    "UNABLE_TO_INFER_SCHEMA": "there is no file of this format",
    "COLUMN_ALREADY_EXISTS": "names of columns differ in upper and lower case alone",
    "PARQUET_TYPE_ILLEGAL": STRANGE,
    "PARQUET_TYPE_NOT_SUPPORTED": STRANGE,
    "PARQUET_TYPE_NOT_RECOGNIZED": STRANGE,
    "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION": STRANGE,
    "FAILED_READ_FILE": DAMAGED,
    "FAILED_TO_CREATE_PLAN_FOR_DIRECT_QUERY": DAMAGED,
    "DATA_SOURCE_NOT_FOUND": "this Spark has no reader of its format",
    "JAVA_GATEWAY_EXITED": "Spark does not start: it needs Java 17, and a master",
}
"""Messages on a failure before any row is read, by the condition of its error."""
HINTS = {
    **dict.fromkeys(
        [condition for condition, problem in TOLD.items() if problem == STRANGE],
        'write the files anew without it, or let DuckDB read them: source = "visits.parquet"',
    ),
    "PATH_NOT_FOUND": "the path of one file or one folder: * and the like stand for themselves",
    "DATA_SOURCE_NOT_FOUND": "add its package to spark.jars.packages in spark-defaults.conf, such "
    "as io.delta:delta-spark_2.13 with its spark.sql.extensions, or read a version of a Delta "
    'table by source = { delta = "folder", version = 3 }',
}
"""Hints, by the condition, where another attempt would not."""

_starting = fresh(threading.Lock())


def session_for(table: Table) -> SparkSession:
    """Return a session of its own in the context of this process, which is started if none is.

    Raises: DataUnavailable.
    """
    return told(table, lambda: _session(table))


def _session(table: Table) -> SparkSession:
    with _starting:
        context = _context(table)
    try:
        return _own_session(context)
    except (PySparkException, Py4JError):
        if _is_running(context):
            raise
    _stop(context)  # one that gave its master up stops by itself, a while after it has started
    _refuse_master(table, str(context.master))


def _own_session(context: SparkContext) -> SparkSession:
    own = SparkSession(context).newSession()
    for name, value in SETTINGS.items():
        own.conf.set(name, value)
    if any(own.conf.get(name) != value for name, value in SETTINGS.items()):
        raise ValueError("a setting of the session does not hold")
    return own


def _is_running(context: SparkContext) -> bool:
    java: Any = context._jsc
    try:
        return java is not None and not java.sc().isStopped()
    except (PySparkException, Py4JError, OSError):
        return False


def _stop(context: SparkContext) -> None:
    """Let go of a context, whether or not its Java still answers."""
    with suppress(PySparkException, Py4JError, OSError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a shutdown that was not clean
        context.stop()
    SparkContext._active_spark_context = None


def _refuse_master(table: Table, master: str) -> NoReturn:
    problem = f"Spark cannot be started with master {master!r}"
    unavailable(table.name, table.source, problem, "check the master, and that it can be reached")


def _context(table: Table) -> SparkContext:
    # what PySpark writes of a failure on the terminal holds what Spark says of it: values
    logging.getLogger("SQLQueryContextLogger").disabled = True
    master = table.option("master")
    found = SparkContext._active_spark_context
    if found is not None and not _is_running(found):
        _stop(found)
        found = None
    if found is None:
        if master is None:
            hint = 'master = "local[*]", or the URL of a cluster'
            unavailable(table.name, table.source, "nothing says where Spark runs", hint)
        return _start(table, master)
    if master not in (None, found.master):
        problem = "this process has a session of Spark with another master"
        unavailable(table.name, table.source, problem, "one process has one master")
    return found


def _start(table: Table, master: str) -> SparkContext:
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is not None and process.poll() is not None:  # Java has ended, whyever
        gateway = SparkContext._gateway = SparkContext._jvm = None
    conf = SparkConf().setMaster(master)
    for name, value in STARTED_WITH.items():
        conf.set(name, value)
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with _memory_for(master):
        gateway = gateway or launch_gateway(conf, silent)  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of newer pandas, of which nothing is used
            return SparkContext(conf=conf, gateway=gateway)
    except (PySparkException, Py4JError):
        pass
    _refuse_master(table, master)


@contextmanager
def _memory_for(master: str) -> Iterator[None]:
    """Let a driver that is its own cluster have a part of the machine, where nobody says more."""
    if not master.startswith("local") or DRIVER_MEMORY in os.environ:
        yield
        return
    os.environ[DRIVER_MEMORY] = f"{max(1024, memory() // LOCAL_PART >> 20)}m"
    try:
        yield
    finally:
        del os.environ[DRIVER_MEMORY]


def told(table: Table, work: Callable[[], T]) -> T:
    """Run what opens a table; a failure of the driver is told by what it is about, in our words.

    Raises: DataUnavailable, without a trace of the driver's error.
    """
    try:
        return work()
    except PySparkException as error:
        condition = error.getCondition() or ""
    except Py4JJavaError as error:
        condition = _condition(error.java_exception)
    except (Py4JError, OSError, ValueError):
        condition = ""
    condition = condition.partition(".")[0]
    problem = TOLD.get(condition, "Spark does not describe it; details are withheld")
    hint = HINTS.get(condition, "`dpsql check CATALOG` tries it again")
    unavailable(table.name, table.source, problem, hint)


def _condition(java: Any) -> str:
    """The condition of an exception of Java, where it has one."""
    try:
        return str(java.getCondition())
    except (Py4JError, OSError):
        return ""
