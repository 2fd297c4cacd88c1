"""A sealed, empty, in-memory DuckDB for public values and noisy tables, never for private rows.

It evaluates predicates on declared domains and the outer shell on answers that already carry noise.
It cannot reach files, the network, Python variables or extensions.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError, ProgrammingError, is_interrupt
from dpsql.forks import awaited, ended_where_opened, fresh, in_child, is_inherited
from dpsql.interrupts import check, ended_by
from dpsql.records import cached_property
from dpsql.vectors import Vector, vectors_of

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "threads": 1,
    "async_threads": 0,
    "memory_limit": "512MB",
}
"""No file, no network, no extension, no Python variable; one thread, since tables are small, and
none for files: eight more of each session took a sixth of the time that it takes to open one."""
TIME_LIMIT = 10.0
"""Seconds of one evaluation over public values."""

PATIENT = 6.0
"""Factor on the time of one over noisy tables: they are paid for, and were rehearsed before."""

LOOKS = 0.1
"""Part of the limit after which it is looked whether anything takes longer."""


_AS_ARRAYS = frozenset({"BIGINT", "INTEGER", "DOUBLE", "VARCHAR"})
"""DuckDB's types whose values are the same as arrays."""


FEW = 2048
"""Values of a column that are found in a list by their places, and not written out for each row."""


class EvaluationError(Exception):
    """DuckDB could not evaluate an expression; the text is DuckDB's own, about public values."""


def disable_progress_bar(connection: duckdb.DuckDBPyConnection) -> None:
    """Draw no progress bar: it tells how many rows there are.

    In a Jupyter kernel without ipywidgets DuckDB has none, and refuses to be told so.
    Raises: InternalError if there is one afterwards.
    """
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    found = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    if found != [(False,)]:
        raise InternalError("E_INTERNAL", "the progress bar could not be switched off")


def open_duckdb(**options: Any) -> duckdb.DuckDBPyConnection:
    """Open an empty DuckDB in memory, which ends in this process alone."""
    with awaited(threading.Lock()):  # of its own: they open side by side
        return ended_where_opened(duckdb.connect(**options))


def end(connection: duckdb.DuckDBPyConnection) -> None:
    """Close a DuckDB, unless it is of the parent of this process."""
    if not is_inherited(connection):
        connection.close()


class PrefetchedConnection:
    """One connection that a thread opens beside other work; whoever is first takes it.

    DuckDB takes 15 ms for each, and does not hold Python's lock meanwhile. Guarantee: nobody has it
    before, and nothing is asked of it: whoever takes it confines it as one that is new.
    """

    def __init__(self, opening: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._opening = opening
        self._thread: threading.Thread | None = None
        self._opened: list[duckdb.DuckDBPyConnection] = []
        atexit.register(self.close)
        in_child(self._opened.clear)  # it is the parent's, and lacks threads

    def begin(self) -> None:
        """Let a thread open it, once in a process."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._open)
            self._thread.start()

    def take(self) -> duckdb.DuckDBPyConnection:
        """The connection that was opened, else one that is opened now. Raises: as opening one."""
        self._wait()
        with contextlib.suppress(IndexError):
            return self._opened.pop()
        return self._opening()

    def close(self) -> None:
        """Close what nobody took."""
        self._wait()
        while self._opened:
            end(self._opened.pop())

    def _open(self) -> None:
        with contextlib.suppress(Exception):  # it is opened again, and told then
            self._opened.append(self._opening())

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()  # at once after a fork


class _Clock:
    """A thread that interrupts what takes too long, and ends when nothing runs.

    A timer for every evaluation took two thirds of the time of a small one.
    """

    def __init__(self) -> None:
        self._lock = fresh(threading.Lock())
        self._running: dict[object, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def limit(self, owner: object, seconds: float, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call ``interrupt`` when what an owner does inside takes so long, and never after it."""
        with self._lock:
            self._running[owner] = time.monotonic() + seconds, interrupt
            if self._thread is None or not self._thread.is_alive():  # as after a fork
                pause = (TIME_LIMIT * LOOKS,)
                self._thread = threading.Thread(target=self._watch, args=pause, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(owner, None)

    def _watch(self, pause: float) -> None:
        while True:
            time.sleep(pause)
            with self._lock:
                now = time.monotonic()
                late = [owner for owner, (due, _) in self._running.items() if due <= now]
                for owner in late:
                    self._running.pop(owner)[1]()
                if not self._running:
                    self._thread = None
                    return


_clock = _Clock()


def _connect() -> duckdb.DuckDBPyConnection:
    connection = open_duckdb(config=_CONFIG)
    disable_progress_bar(connection)
    for setting in (
        "SET temp_directory = ''",
        # What TRY() holds would be computed outside of it, and fail there, if it stood twice.
        "SET disabled_optimizers = 'in_clause,common_subexpressions'",
        "SET enable_external_access = false",
        "SET lock_configuration = true",
    ):
        connection.execute(setting)
    return connection


ahead = PrefetchedConnection(_connect)


class _Filling:
    """The columns that a table is filled with: arrays as they are, other values as lists.

    ``arrays`` are scanned as a table called filling; beside its rows stand those of ``lists``,
    one of each for every row; ``known`` are lists of the values that rows have places among.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.lists: list[list[Any]] = []
        self.known: list[list[Any]] = []
        self._kinds: list[str] = []

    def column(self, kind: str, values: Sequence[object]) -> str:
        """Take a column in, and return the SQL of its values."""
        if isinstance(values, range):
            return self._array(np.arange(values.start, values.stop, values.step))
        if isinstance(values, Vector) and isinstance(values.values, np.ndarray):
            found = self._array(values.placed(values.values))
            if values.missing is None:
                return found
            return f"CASE WHEN NOT {self._array(values.nulls())} THEN {found} END"
        if isinstance(values, Vector) and values.places is not None and len(values.values) <= FEW:
            self.known.append(values.distinct())
            return f"list_extract(?::{kind}[], {self._array(values.places + 1)})"
        self.lists.append(list(values))
        self._kinds.append(kind)
        return f"beside.l{len(self.lists)}"

    def _array(self, array: NDArray[Any]) -> str:
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array
        return f"filling.{name}"

    def source(self) -> str:
        """The SQL of the rows."""
        if not self._kinds:
            return "filling"
        rows = [f"unnest(?::{kind}[]) AS l{n}" for n, kind in enumerate(self._kinds, start=1)]
        beside = f"(SELECT {', '.join(rows)}) AS beside"
        return f"filling POSITIONAL JOIN {beside}" if self.arrays else beside


def _vector(array: Any) -> Vector:
    """A column that DuckDB gave as an array, masked where it is NULL."""
    values, missing = np.ma.getdata(array), np.ma.getmaskarray(array)
    if values.dtype == object:
        values[missing] = None
        return Vector(tuple(values.tolist()))
    kind = np.float64 if values.dtype.kind == "f" else np.int64
    return Vector(values.astype(kind, copy=False), missing if missing.any() else None)


class SealedConnection:
    """One sealed connection, opened when it is first needed. Not thread safe."""

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return ahead.take()

    @cached_property
    def _empty(self) -> dict[str, dict[str, str]]:
        """The tables without rows, with the types of their columns."""
        return {}

    def run(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run generated SQL and return its rows.

        Raises: EvaluationError; ProgrammingError (E_TOO_COMPLEX) after ``TIME_LIMIT`` seconds.
        """
        return self.query(sql, parameters)[1]

    def query(
        self, sql: str, parameters: Sequence[object] = (), limits: float = 1.0
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Run generated SQL and return the DuckDB types of its columns and its rows.

        Args:
            sql: generated; nothing that a user typed stands in it but as a parameter or a checked
                name.
            parameters: values of its marks, in their order.
            limits: times as long as over public values that it may take.
        """
        with self._executed(sql, parameters, limits) as found:
            kinds = tuple(str(column[1]) for column in found.description or ())
            return kinds, found.fetchall()

    def vectors(self, sql: str, limits: float) -> tuple[tuple[str, ...], tuple[Vector, ...]]:
        """Run generated SQL and return the DuckDB types of its columns, and these.

        Numbers and texts come as arrays, other columns by rows: as arrays, decimals and large
        integers would be doubles. Raises: as ``run``.
        """
        with self._executed(sql, (), limits) as found:
            kinds = tuple(str(column[1]) for column in found.description or ())
            if not _AS_ARRAYS.issuperset(kinds):
                return kinds, vectors_of(found.fetchall(), len(kinds))
            return kinds, tuple(map(_vector, found.fetchnumpy().values()))

    def truths(self, sql: str) -> NDArray[np.bool_]:
        """Run generated SQL with one column ``x`` of truth values, none NULL, and return these.

        They take a byte each, where rows take a hundred. Raises: as ``run``.
        """
        return np.asarray(self.columns(sql)["x"], dtype=np.bool_)

    def columns(self, sql: str) -> dict[str, NDArray[Any]]:
        """Run generated SQL and return its columns by name, none with NULL. Raises: as ``run``."""
        with self._executed(sql, (), 1.0) as found:
            return {name: np.asarray(each) for name, each in found.fetchnumpy().items()}

    @contextmanager
    def _executed(
        self, sql: str, parameters: Sequence[object], limits: float
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Run SQL, for its rows to be fetched within the time that it may take."""
        try:
            stop = self._connection.interrupt
            with _clock.limit(self, limits * TIME_LIMIT, stop), ended_by(stop):
                yield self._connection.execute(sql, list(parameters))
        except duckdb.InterruptException:
            check()  # somebody asked for it
            raise ProgrammingError(
                "E_TOO_COMPLEX", "the expression takes too long to evaluate on the declared domain"
            ) from None
        except duckdb.Error as error:
            raise EvaluationError(str(error)) from None
        except RuntimeError as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            raise

    def find_error(self, sql: str) -> tuple[str, int] | None:
        """Say what is wrong with the syntax of SQL, and at which character; None when nothing is.

        The text is parsed by DuckDB and never run.
        """
        try:
            self._connection.extract_statements(sql)
        except duckdb.Error as error:
            found = self.run("SELECT json_serialize_sql(?)", [sql])[0][0]
            facts = json.loads(found)
            text = facts.get("error_message") or str(error).split("\n")[0]
            return text, int(facts.get("position") or 0)
        return None

    def fill(self, table: str, columns: Mapping[str, tuple[str, Sequence[object]]]) -> None:
        """(Re)create ``table`` with columns name -> (DuckDB type, values of equal length).

        One without rows that is there as it is asked for stays.
        """
        kinds = {name: kind for name, (kind, _) in columns.items()}
        is_empty = not any(len(values) for _, values in columns.values())
        if is_empty and self._empty.get(table) == kinds:
            return
        self._empty.pop(table, None)
        filling = _Filling()
        shown = [
            f"CAST({filling.column(kind, values)} AS {kind}) AS {name}"
            for name, (kind, values) in columns.items()
        ]
        if filling.arrays:
            self._connection.register("filling", filling.arrays)
        try:
            self._connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {', '.join(shown)}"
                f" FROM {filling.source()}",
                [*filling.known, *filling.lists],
            )
        finally:
            self._connection.unregister("filling")
        if is_empty:
            self._empty[table] = kinds

    def close(self) -> None:
        """Release the connection."""
        if "_connection" in vars(self):
            end(self._connection)
