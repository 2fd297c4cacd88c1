"""Processes that work on public facts for one that has rows: they may be killed at any moment.

What a text means, which strategy is best and what errors it will have are functions of public
facts: the catalog, statements, terms and rows of public tables. A server has them worked out beside
it. A process for that is forked from one that has read nothing, imports nothing that reaches rows,
and has a limit of memory. Whoever is asked to end kills it, so that a loop which looks for nothing
ends too, and neither its memory nor Python's lock is the server's.

Guarantee: no rows are sent. What rows are counted by is worked out again where an answer arrives:
tables that statements derive here, sensitivities in the membrane. An answer is read as values of
listed packages alone, which are records, lists of names and errors: nothing that opens or runs.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import resource
import signal
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from multiprocessing import connection as pipes
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MethodType
from typing import Any, TypeVar

from dpsql.catalog import Catalog
from dpsql.dialect.reading import PostgresReader
from dpsql.engine.defects import unexpected
from dpsql.errors import Error, InternalError, OperationalError
from dpsql.interrupts import check, ended_by, retry_until
from dpsql.records import complete, dataclass, field, replace
from dpsql.relation.derive import derive
from dpsql.relation.unit_local import DerivedTable, scanned
from dpsql.settings.machine import request_memory
from dpsql.sql.products import Compiler
from dpsql.sql.text.lexemes import Fragment
from dpsql.sql.text.parse import Statement
from dpsql.vectors import PublicValues

T = TypeVar("T")
Seen = dict[str, Any]
Name = tuple[str, int, int]

MOST = max(8, 2 * (os.cpu_count() or 1))
"""Processes at once; who comes then waits until one is free."""
LAST = 4
"""One in so many places, at least one, is for those who have nothing at work."""
CATALOGS = 8
"""Catalogs, with what was compiled over them, that a process keeps."""
COLUMNS = 1000
"""Columns of public tables that are known by number."""
PARSED = 100
"""Statements whose trees wait there for being compiled."""
LARGE = 1 << 30
"""Bytes that a process may have come to hold, in the end, without being replaced by a new one."""
POLITE = 3
"""Niceness: what answers comes before what is worked out."""
PRELOADED = "dpsql.engine.planning_preload"
"""Imported by the process that others are forked from, so that they begin in milliseconds."""
FUNCTIONS = frozenset({"numpy._core.multiarray._reconstruct", "numpy._core.multiarray.scalar"})
FUNCTIONS |= {"numpy._core.numeric._frombuffer", "dpsql.errors._as_it_was"}
FUNCTIONS |= {"_codecs.encode"}
"""Functions that values are put together by."""
ORIGINS = frozenset({"numpy", "fractions", "decimal", "datetime", "collections", "uuid"})
MATHEMATICS = frozenset({"algebra", "strategy", "workload"})
"""Packages whose classes hold arrays and call nothing."""
RECORDS = (
    *("answer", "catalog", "dialect", "engine.explanation", "errors", "logical", "plan"),
    *("relation", "sql"),
)
"""Modules with records, enumerations, tuples and errors of answers, beside classes that act."""
PLAIN = frozenset({"complex", "frozenset", "set", "range", "slice", "bytearray", "object", "tuple"})
PLAIN |= {"list", "dict", "int", "float", "str", "bytes", "bool", "MemoryError"}
DIED = "the process that was working on this has ended: it may have needed more memory than it may"
SMALLER = "nothing was charged; ask for fewer columns, cells or statements at once"


class _Receiver(pickle.Unpickler):
    """Reads what was asked or answered; ``find`` has what is named, and was not sent."""

    def __init__(self, data: bytes, find: Callable[[str, int, int], Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._find = find

    def find_class(self, module: str, name: str) -> Any:
        return self._find if (module, name) == _HERE else super().find_class(module, name)


def kept(kind: str, number: int, count: int) -> Any:
    """Stand for what whoever reads this has of its own, or asks for when it is looked at."""
    raise pickle.UnpicklingError(f"{kind} {number} is not here")


_HERE = kept.__module__, kept.__qualname__


class _Wary(_Receiver):
    """Reads what was answered: classes of listed packages. Raises: pickle.UnpicklingError."""

    def find_class(self, module: str, name: str) -> Any:
        found, origin = super().find_class(module, name), f"{module}.{name}"
        is_kept = (module, name) == _HERE or origin in FUNCTIONS
        if not (is_kept or _is_value(module, name, found)):
            raise pickle.UnpicklingError(f"{origin} is no value")
        return found


def _is_value(module: str, name: str, found: object) -> bool:
    """Return whether something named in an answer is a class of values, from a listed package."""
    package, _, room = module.partition(".")
    if module == "builtins":
        return name in PLAIN
    if package != "dpsql" or not isinstance(found, type):
        return isinstance(found, type) and package in ORIGINS
    if room.split(".")[0] in MATHEMATICS:
        return True
    complete(found)  # one with slots is no dataclass before
    is_record = is_dataclass(found) or issubclass(found, (Enum, tuple, BaseException))
    return is_record and any(f"{room}.".startswith(f"{each}.") for each in RECORDS)


def _read(data: bytes, find: Callable[[str, int, int], Any]) -> tuple[str, Any, int]:
    """Return an answer. Raises: InternalError where it is more than values."""
    try:
        said, found, peak = _Wary(data, find).load()
        return said, found, peak
    except pickle.UnpicklingError as error:
        raise InternalError(
            "E_INTERNAL", f"a process answered what is no answer: {error}"
        ) from None


def _written(value: Any, name: Callable[[Any], Name]) -> bytes:
    """Write what is asked or answered; ``name`` is given what is not sent."""
    found = io.BytesIO()
    pickler = pickle.Pickler(found, pickle.HIGHEST_PROTOCOL)
    kinds = Compiler, PostgresReader, PublicValues, MethodType
    pickler.dispatch_table = copyreg.dispatch_table | dict.fromkeys(
        kinds, lambda each: (kept, name(each))
    )
    pickler.dump(value)
    return found.getvalue()


# In a process of its own.


class _Bench:
    """The state of a planning process: what it keeps from one piece of work to the next."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._compilers: OrderedDict[int, Compiler] = OrderedDict()
        self._readers: dict[int, PostgresReader] = {}
        self._parsed: OrderedDict[Fragment, Statement] = OrderedDict()
        self._columns: dict[int, PublicValues] = {}

    def run(self) -> None:
        """Do what is asked, one after another, until nobody asks any more."""
        with suppress(EOFError, OSError):
            while True:
                sent = self._pipe.recv_bytes()
                self._pipe.send_bytes(self._answer(sent))

    def _answer(self, sent: bytes) -> bytes:
        used: list[Compiler] = []

        def find(kind: str, number: int, count: int) -> Any:
            if kind == "method":
                return lambda *given: self._ask("method", number, given)
            if kind == "column":
                return self._column(kind, number, count)
            compiler = self._compiler(number)
            if kind == "reader":
                return self._readers.setdefault(number, PostgresReader(compiler.catalog))
            used.append(compiler)
            return compiler

        try:
            work, given = _Receiver(sent, find).load()
            found = self._without_tree(work(*map(self._with_tree, given)))
            derived = [table for each in used for table in _derived(found, each.catalog)]
            said: tuple[str, Any] = "done", (found, derived)
        except (Error, MemoryError) as error:
            said = "failed", error
        except Exception as error:
            said = "failed", unexpected(error)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        try:
            return _written((*said, peak), self._name)
        except MemoryError as error:
            return _written(("failed", error, peak), self._name)

    def _name(self, each: Any) -> Name:
        """The name of what is the server's own."""
        if isinstance(each, PostgresReader):
            return "reader", 0, 0
        for number, known in self._columns.items():
            if known is each:
                return "column", number, len(each)
        raise pickle.PicklingError(f"a {type(each).__name__} is not sent back")

    def _column(self, kind: str, number: int, count: int) -> PublicValues:
        """A column of a public table, whose values are asked for when one is looked at."""
        found = PublicValues(count, lambda: self._ask("values", number, ()))
        return self._columns.setdefault(number, found)

    def _without_tree(self, found: Any) -> Any:
        """Return a result as it is sent; the tree of a statement stays, to be compiled next."""
        if not isinstance(found, Statement) or found.tree is None:
            return found
        self._parsed[found.fragment] = found
        while len(self._parsed) > PARSED:
            self._parsed.popitem(last=False)
        return replace(found, tree=None)

    def _with_tree(self, given: Any) -> Any:
        """The same with its tree, once, if it was parsed here: compiling changes it."""
        if not isinstance(given, Statement) or given.tree is not None:
            return given
        known = self._parsed.pop(given.fragment, None)
        return given if known is None else replace(given, tree=known.tree)

    def _compiler(self, number: int) -> Compiler:
        if number not in self._compilers:
            self._compilers[number] = Compiler(self._ask("catalog", number, ()))
            while len(self._compilers) > CATALOGS:
                old, compiler = self._compilers.popitem(last=False)
                self._readers.pop(old, None)
                compiler.evaluator.close()
        self._compilers.move_to_end(number)
        return self._compilers[number]

    def _ask(self, what: str, number: int, given: tuple[Any, ...]) -> Any:
        """Ask whoever asks this for something. Raises: Error, as it did there."""
        self._pipe.send_bytes(pickle.dumps((what, (number, given), 0)))
        is_found, found = _Receiver(self._pipe.recv_bytes(), self._column).load()
        if not is_found:
            raise found
        return found


def _derived(found: Any, catalog: Catalog) -> Iterator[DerivedTable]:
    """The tables that compiled statements are about and the catalog did not declare, in order."""
    waiting = [each.query.table for each in getattr(found, "selects", ())]
    names: list[str] = []
    while waiting:
        table = catalog.derived.get(waiting.pop())
        if isinstance(table, DerivedTable):
            names.append(table.name.casefold())
            waiting += map(str.casefold, scanned(table.relation))
    for name, table in catalog.derived.items():
        if name in names and isinstance(table, DerivedTable):
            yield table


def run_worker(pipe: Pipe, room: int) -> None:
    """Work in a process of its own, which ends with the one that it works for.

    Args:
        pipe: where work comes from, and where it goes.
        room: bytes that it may take beside what it begins with.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(POLITE)
    with suppress(OSError):  # where memory is short, this goes first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        limit = _data() + room
        if most == resource.RLIM_INFINITY or limit < most:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    _Bench(pipe).run()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        pipes.wait([parent.sentinel])
        os._exit(1)


def _data() -> int:
    """The bytes of memory of its own that this process has by now."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("VmData"))
    return int(found) * 1024


# In the server.


@dataclass(eq=False)
class _Worker:
    """One process, and the end of its pipe that is here."""

    process: BaseProcess
    pipe: Pipe
    is_ended: bool = False

    def end(self) -> None:
        """Kill it."""
        self.is_ended = True
        with suppress(OSError, AttributeError):
            self.process.kill()

    @property
    def is_over(self) -> bool:
        """True once the process has ended, or will in a moment."""
        return self.is_ended or bool(pipes.wait([self.process.sentinel], 0))


@dataclass(eq=False)
class PlanningProcesses:
    """Processes that work for threads of this one: one at a time each, and as many as are needed.

    Args:
        most: processes at once.
        room: bytes of memory that each may take, those of one request by default.
        ended: how many were killed, or have died, so far.
    """

    most: int = MOST
    room: int = field(default_factory=request_memory)
    ended: int = 0
    _idle: list[_Worker] = field(default_factory=list)
    _all: set[_Worker] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _catalogs: OrderedDict[int, Catalog] = field(default_factory=OrderedDict)
    _columns: OrderedDict[int, PublicValues] = field(default_factory=OrderedDict)
    _numbers: int = 0
    _places: Counter[object] = field(default_factory=Counter)
    _is_closed: bool = False

    def __post_init__(self) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([PRELOADED])

    @property
    def busy(self) -> int:
        """The number of processes that are at work."""
        with self._lock:
            return len(self._all) - len(self._idle)

    def begin(self) -> None:
        """Have one made ready, before anybody asks, while this goes on."""
        threading.Thread(target=self._begin, daemon=True).start()

    def _begin(self) -> None:
        with suppress(OperationalError), self._lent(None):  # whoever asks is told
            pass

    def __call__(self, work: Callable[..., T], *given: Any, whose: object = None) -> T:
        """Have a function of public facts worked out for somebody, and return what it does.

        Its bound methods among ``given`` are called here. Nobody takes the last places who has
        work in others, so that who asks for a hundred things at once does not keep all others out.
        Raises: as it does; OperationalError (E_PLANNING) where the process dies; KeyboardInterrupt
        within a moment of being asked to end.
        """
        seen: Seen = {"methods": [], "catalogs": {}, "reader": None}
        sent = _written((work, given), lambda obj: self._name(obj, seen))
        with self._lent(whose) as worker:
            try:
                with ended_by(worker.end):
                    worker.pipe.send_bytes(sent)
                    said, found = self._await(worker, seen)
            except (EOFError, OSError):
                said, found = "died", None
                worker.end()
            except BaseException:
                worker.end()
                raise
        check()  # who is asked to end meets a process that has ended
        if said == "died":
            raise OperationalError("E_PLANNING", DIED, hint=SMALLER)
        if said == "failed":
            raise found
        answer, derived = found
        for table in derived:
            _rederive(seen["catalogs"].values(), table)
        result: T = answer
        return result

    def _await(self, worker: _Worker, seen: Seen) -> tuple[str, Any]:
        """Return the outcome; questions until then are answered."""
        while True:
            data = worker.pipe.recv_bytes()
            said, found, peak = _read(data, lambda *name: self._own(name, seen))
            if said in ("done", "failed"):
                if peak > LARGE:
                    worker.end()
                return said, found
            number, asked = found
            try:
                if said == "catalog":
                    answer: Any = replace(seen["catalogs"][number], derived={})
                elif said == "values":
                    answer = list(self._columns[number])
                else:
                    answer = seen["methods"][number](*asked)
                is_found = True
            except Exception as error:
                is_found, answer = False, error if isinstance(error, Error) else unexpected(error)
            named = _written((is_found, answer), lambda each: self._name(each, seen))
            worker.pipe.send_bytes(named)

    def _own(self, name: Name, seen: Seen) -> Any:
        """Return the value that a name in an answer stands for here."""
        kind, number, _ = name
        return seen["reader"] if kind == "reader" else self._columns[number]

    def _name(self, each: Any, seen: Seen) -> Name:
        if isinstance(each, MethodType):
            seen["methods"].append(each)
            return "method", len(seen["methods"]) - 1, 0
        if isinstance(each, PublicValues):
            return "column", self._column(each), len(each)
        number = self._number(each.catalog)
        seen["catalogs"][number] = each.catalog
        if isinstance(each, PostgresReader):
            seen["reader"] = each
            return "reader", number, 0
        return "compiler", number, 0

    def _column(self, values: PublicValues) -> int:
        """The number of a column of a public table, which is known by it from now on."""
        with self._lock:
            for number, known in self._columns.items():
                if known is values:
                    return number
            self._numbers += 1
            self._columns[self._numbers] = values
            while len(self._columns) > COLUMNS:
                self._columns.popitem(last=False)
            return self._numbers

    def _number(self, catalog: Catalog) -> int:
        """The number of a catalog: the same for all sessions that know the same."""
        with self._lock:
            for number, known in reversed(self._catalogs.items()):
                if known is catalog or known == catalog:
                    self._catalogs.move_to_end(number)
                    return number
            self._numbers += 1
            self._catalogs[self._numbers] = catalog
            while len(self._catalogs) > self.most * CATALOGS:
                self._catalogs.popitem(last=False)
            return self._numbers

    @contextmanager
    def _lent(self, whose: object) -> Iterator[_Worker]:
        """A process for one piece of work: that which was last at work, else a new one."""
        retry_until(partial(self._has_place, whose))
        worker = None
        try:
            worker = self._idle_one() or self._start()
            yield worker
        finally:
            with self._lock:
                self._places.subtract([whose])
                self._places += Counter()  # those alone who have some
                if worker is not None and not self._is_closed and not worker.is_over:
                    self._idle.append(worker)
                    worker = None
            if worker is not None:
                self._forget(worker)

    def _has_place(self, whose: object) -> bool:
        with self._lock:
            if self._is_closed:
                raise OperationalError("E_CLOSED", "the server is being closed")
            free = self.most - self._places.total()
            has = free > (-(-self.most // LAST) if self._places[whose] else 0)
            self._places.update([whose] * has)
            return has

    def _idle_one(self) -> _Worker | None:
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None or not found.is_over:
                return found
            self._forget(found)

    def _start(self) -> _Worker:
        here, there = self._context.Pipe()
        process = self._context.Process(target=run_worker, args=(there, self.room), daemon=True)
        try:
            process.start()
        except (OSError, EOFError, RuntimeError) as error:
            here.close()
            what = f"no process could be started for this: {type(error).__name__}"
            raise OperationalError("E_PLANNING", what, hint="ask again in a moment") from None
        finally:
            there.close()
        found = _Worker(process, here)
        with self._lock:
            self._all.add(found)
        return found

    def _forget(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
            self.ended += not self._is_closed
        worker.end()
        worker.pipe.close()

    def close(self) -> None:
        """End them all, at work or not."""
        with self._lock:
            self._is_closed = True
            every, self._idle = list(self._all), []
        for each in every:
            each.end()


def _rederive(catalogs: Iterable[Catalog], table: DerivedTable) -> None:
    """Derive a table here too: what it is follows from its relation, whoever has worked it out.

    Raises: InternalError where it is not what its name says.
    """
    label, _, _ = table.name.rpartition(" #")
    for catalog in catalogs:
        if derive(catalog, table.relation, label, table.unit.max_rows) != table:
            raise InternalError("E_INTERNAL", "a derived table is not what it was said to be")
