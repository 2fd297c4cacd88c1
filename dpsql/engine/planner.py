"""The planner: all that is known without the data, enough to plan and to forecast."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from dpsql.algebra.operator import Operator
from dpsql.answer.discovered import (
    Discovered,
    declare_all,
    sought_by,
    sought_in,
    unfound,
    with_one_key,
)
from dpsql.answer.store import Store
from dpsql.catalog import Catalog, Table
from dpsql.catalog.catalog import ALL, OWNERS
from dpsql.dialect.emptiness import columns_alone
from dpsql.engine.charges import Charges
from dpsql.engine.defects import told
from dpsql.engine.granted_files import NOTHING, GrantedFiles
from dpsql.engine.terms import Terms, demanded_epsilon, form_request
from dpsql.errors import Error, NotSupportedError, ProgrammingError
from dpsql.interrupts import AsyncInterrupts
from dpsql.plan.plan import Plan
from dpsql.plan.request import PlannedRequest, Request, make_plan
from dpsql.privacy.budget.curator_acts import SCRATCH, nested_budgets
from dpsql.privacy.budget.hash_chain import ANALYST
from dpsql.records import dataclass, fields, replace
from dpsql.sealed import SealedConnection
from dpsql.sql.compiled import Compiled
from dpsql.sql.compose import compile_statement
from dpsql.sql.products import Compiler
from dpsql.sql.text.clauses import Cut, read_option_values, read_truncation
from dpsql.sql.text.cycle_collector import uncollected
from dpsql.sql.text.lexemes import Fragment, StatementReader
from dpsql.sql.text.parse import Statement, parse, reparse
from dpsql.workload.term import Pattern

if TYPE_CHECKING:
    from dpsql.answer.synthetic_tables import Synthetic
    from dpsql.dialect.reading import PostgresReader
    from dpsql.privacy.budget.status import Status

S = TypeVar("S", Discovered, "Synthetic")
T = TypeVar("T")

ASKED = 64
"""Requests that are kept, so that one that is made again is not laid out and planned again."""
SMALL = 10_000
"""Fields of results, and cells of columns, up to which a request is kept."""

Versions = tuple[str, ...]
"""Digests of one version of data: as they are stored now, and as they were stored before."""

NO_SUCH_KEY = "E_NOT_IN_DOMAIN"
HELD = 1 << 28
"""Bytes, about, of statements that are kept in their compiled form: 15,000 small ones."""
OWN, FIELD, NUMBER = 1 << 14, 32, 8
"""Bytes of any statement that is kept, with its parts; of a field of its result; of a number."""
UNREAD = "this was measured of the version of its rows that was seen last"
READ = 10_000
"""Statements that are not parsed again where they are asked again."""


@dataclass(slots=True, eq=False)
class CachedRequest:
    """A request that is kept, the terms that it was made on, and its plan once it has one."""

    terms: Terms
    default: Fraction | None
    request: Request
    planned: PlannedRequest | None = None


class PlanExecutor(Protocol):
    """The place where functions of public facts are worked out, whatever they take."""

    def __call__(self, work: Callable[..., T], *given: Any, whose: object = None) -> T:
        """Work one out for somebody. Raises: as it does, and where it cannot be."""


def read_statement(fragment: Fragment, compiler: Compiler) -> Statement:
    """Parse a statement; one of which no row can come is known by its columns."""
    return columns_alone(parse(fragment, compiler.parts), compiler.catalog)


def least_of(workload: Sequence[Compiled], terms: Terms, compiler: Compiler) -> Fraction:
    """The least epsilon that keeps to the errors that statements demand."""
    return demanded_epsilon(workload, terms, compiler.evaluator.sealed)


class Planner(ABC):
    """The meaning of statements over one catalog, what is published, and what may still be asked.

    Jobs are given it where they need no data. What it is told of the data are versions, as keyed
    digests, and rows of public tables.
    """

    ledger_id: str
    """The ledger that the catalog is charged to."""

    def __init__(
        self,
        catalog: Catalog,
        analyst: str | None = None,
        granted: GrantedFiles = NOTHING,
        store: Store | None = None,
    ) -> None:
        self.catalog = catalog
        self.meaning = catalog.meaning_hash()
        self.analyst = analyst
        self.granted = granted
        self.planning: PlanExecutor | None = None
        self.charges = Charges()
        self.demanded: Mapping[str, float] = {}
        self.unread: set[str] = set()
        self.scratch = False
        self.store = Store(catalog.path) if store is None else store
        self.models: dict[str, Synthetic] = {}
        self.found: dict[str, Discovered] = {}
        self.declared = catalog
        self._all: dict[str, Discovered] = {}
        self._paid_by: dict[tuple[str, int, str], tuple[str, ...]] = {}
        self._count = b""
        self.compiler = Compiler(catalog)
        self._compiled: dict[tuple[str, Cut | None, StatementReader | None], Compiled] = {}
        self._reader: PostgresReader | None = None
        self._held = 0
        self._read: dict[Fragment, Statement] = {}
        self._asked: dict[tuple[int, ...], CachedRequest] = {}
        self._public: dict[str, dict[str, tuple[str, Sequence[Any]]]] = {}
        self.know()

    def apart(self, work: Callable[..., T], *given: Any) -> T:
        """Work out a function of public facts: in a process for that, where there are such.

        Raises: as it does, and where none can be started or it dies.
        """
        if self.planning is None:
            return work(*given)
        return self.planning(work, *given, whose=self if self.analyst is None else self.analyst)

    @abstractmethod
    def status(self) -> Status:
        """Return the remainder of the budget."""

    @abstractmethod
    def versions(self, tables: Iterable[str]) -> Versions:
        """Return versions that change with the data of these tables. Raises: DataUnavailable."""

    @abstractmethod
    def was_paid(self, seq: int, statements: Sequence[str]) -> bool:
        """True if an entry of the ledger was charged for these very statements."""

    @abstractmethod
    def paid_within(self, seq: int) -> tuple[str, ...]:
        """The budgets inside the whole one that an entry of the ledger was charged to."""

    @abstractmethod
    def read_public(self, table: Table) -> dict[str, tuple[str, Sequence[Any]]]:
        """The rows of a public table."""

    def said_of(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return the lines of a forecast on rows that files do not hold: nothing is opened."""
        return ()

    def _declare(self, found: Mapping[str, Discovered]) -> Catalog:
        """The catalog with domains and bounds that were found."""
        tables = {
            key: declare_all(table, sought_in(table, found))
            for key, table in self.catalog.tables.items()
        }
        return replace(self.catalog, tables=tables)

    def _with_models(self, declared: Catalog, models: Iterable[Synthetic]) -> Catalog:
        """A catalog with synthetic tables, whose keys may be of domains that are not seen."""
        tables = dict(declared.tables)
        for synthetic in models:
            key = synthetic.name.casefold()
            if synthetic.table in tables and key not in tables:
                table = self.catalog.tables[synthetic.table]
                heads = [self._all[head] for head in synthetic.released if head in self._all]
                tables[key] = synthetic.describe(declare_all(table, heads))
        return replace(declared, tables=tables)

    def _seen(self, made: Iterable[S], analyst: str | None) -> list[S]:
        """Return objects that an analyst sees, the own ones last; "" is nobody in particular.

        Where names are everybody's, and for the curator, they are all there are.
        """
        ordered = sorted(made, key=lambda each: each.receipt[1])
        if self.catalog.visibility == ALL or analyst is None:
            return ordered
        common = [each for each in ordered if not self._owners(each.receipt)]
        return common + [each for each in ordered if analyst in self._owners(each.receipt)]

    def _owners(self, receipt: tuple[str, int, str]) -> tuple[str, ...]:
        """The analysts whose budgets paid; of another ledger they are not known, and nobody."""
        if receipt not in self._paid_by:
            within = self.paid_within(receipt[1])
            found = [each.removeprefix(ANALYST) for each in within if each.startswith(ANALYST)]
            self._paid_by[receipt] = tuple(found) if receipt[0] == self.ledger_id else ("",)
        return self._paid_by[receipt]

    def table_key(self, name: str) -> str:
        """The key that a synthetic table of a name is stored by: of an analyst's own, or one."""
        is_own = self.catalog.visibility == OWNERS and self.analyst is not None
        return f"{self.analyst}/{name.casefold()}" if is_own else name.casefold()

    @property
    def common(self) -> Catalog:
        """The catalog with what everybody sees of domains and synthetic tables."""
        if self.catalog.visibility == ALL:
            return self.known
        found = {each.head: each for each in self._seen(self._all.values(), "")}
        models = self._seen(self.store.tables.all().values(), "")
        return self._with_models(self._declare(found), models)

    @property
    def known(self) -> Catalog:
        """The catalog with the domains that were found and the synthetic tables."""
        return self.compiler.catalog

    def know(self) -> None:
        """Know what is published by now: synthetic tables, and domains that were found."""
        models, self._count = self.store.tables.all_with_count()
        made = told_apart(self._seen(models.values(), self.analyst))
        self.models.update({each.name.casefold(): each for each in made})
        self._all = self.store.domains.all()
        found = told_apart(self._seen(self._all.values(), self.analyst))
        self.found = {each.head: each for each in found}
        self.declared = self._declare(self.found)
        known = self._with_models(self.declared, self.models.values())
        before = self.compiler.catalog.tables
        if all(known.tables[key] == table for key, table in before.items()):
            self.compiler.catalog = known
            self._compiled.clear()
            self._held = 0
            self._asked.clear()
        else:
            self._forget(known)  # what the compiler remembers is of other columns

    def _forget(self, known: Catalog) -> None:
        """Let go of all statements, and of what was worked out for them, by a catalog."""
        self.catalog.derived.clear()
        self.compiler = Compiler(known)
        self._compiled.clear()
        self._held = 0
        self._read.clear()
        self._asked.clear()

    @property
    def released(self) -> tuple[str, ...]:
        """The domains and bounds that are declared by now because they were found."""
        found = (each for each in self.found.values() if not each.dropped)
        return tuple(each.told for each in found)

    def catch_up(self) -> None:
        """Know what other connections and processes have published since."""
        if self.store.tables.file.counter.read() != self._count:
            self.know()

    @property
    def sealed(self) -> SealedConnection:
        """The evaluator of noisy tables."""
        return self.compiler.evaluator.sealed

    def read(self, fragment: Fragment, dialect: str = "duckdb") -> Statement:
        """Stage 1: parse a statement. A SELECT is remembered, without its tree: see ``compile``.

        The dialect is that of the session that asks it. One of which no row can come is of the
        kind ``empty``: it is known by its columns.

        When too much is held, all is let go of here: a request has nothing compiled yet.
        Raises: as ``parse``.
        """
        if self._held > HELD:
            self._forget(self.known)
        fragment = replace(fragment, reader=self.reader() if dialect == "postgres" else None)
        if fragment in self._read:
            return self._read[fragment]
        statement = self.apart(read_statement, fragment, self.compiler)
        if statement.kind == "select" and statement.fragment.text == fragment.text:  # of any day
            while len(self._read) >= READ:
                del self._read[next(iter(self._read))]
            self._read[fragment] = replace(statement, tree=None)
        return statement

    def reader(self) -> PostgresReader:
        """Return what reads PostgreSQL's SQL, with the columns that are known now."""
        from dpsql.dialect.reading import PostgresReader  # no session of the library begins with it

        if self._reader is None:
            self._reader = PostgresReader(self.known)
        self._reader.catalog = self.known
        return self._reader

    def compile(self, statements: Sequence[Statement]) -> tuple[Compiled, ...]:
        """Stages 2 and 3: bind every statement and form its products, each text once."""
        self.catch_up()
        with uncollected():
            found = [
                told(partial(self._compile, item), self.charges, item.fragment.whole)
                for item in statements
            ]
        return tuple(map(self._demanding, found))

    def _demanding(self, item: Compiled) -> Compiled:
        """A statement with the largest error that all of a session keep to."""
        if not self.demanded or item.demands or item.is_static or item.is_modelled:
            return item
        wanted: Any = self.demanded
        return replace(item, lenient=True, **wanted)

    def cut(self, workload: Sequence[Compiled], cuts: Iterable[Cut | None]) -> tuple[Compiled, ...]:
        """The statements with the values of a column clipped, where that is wanted of them."""
        pairs = zip(workload, cuts, strict=True)
        return tuple(
            item
            if cut is None
            else self._compile(replace(reparse(item.text, item.reader), cut=cut))
            for item, cut in pairs
        )

    def _compile(self, statement: Statement) -> Compiled:
        text, cut = statement.fragment.body, statement.cut
        reader = statement.fragment.reader
        if (text, cut, reader) not in self._compiled:
            options = statement.options
            bound = self._bound(statement)
            weight, most, part, how = read_option_values(
                options, "weight", "max_stddev", "within", "reconstruct"
            )
            found = self._compiled[text, cut, reader] = replace(
                bound,
                weight=weight,
                max_stddev=most,
                within=part,
                reconstruct=how,
                truncation=read_truncation(statement.fragment, options),
                typed=tuple(each.type for each in statement.columns or ()),
                reader=reader,
            )
            self._held += _bytes_of(found)
        return self._compiled[text, cut, reader]

    def _bound(self, statement: Statement) -> Compiled:
        """A statement, compiled; where it wants keys to be found, as if each column had one."""
        if read_option_values(statement.options, "keys") != ["private"]:
            return self._formed(statement, self.compiler)
        compiler = Compiler(self._supposing(with_one_key(self.known.tables)))
        try:
            provisional = self._formed(statement, compiler)
        except ProgrammingError as error:
            if error.code != NO_SUCH_KEY or self._is_listed(statement, error):
                raise
            what, hint = "there are no keys yet to compare with", "CREATE DOMAIN first"
            raise NotSupportedError(NO_SUCH_KEY, what, hint=hint, span=error.span) from None
        sought = sought_by(provisional)
        if not unfound(sought, self.declared.tables):
            provisional = self._formed(self._again(statement), self.compiler)
        chance = dict(statement.options).get("discovery_delta")
        return replace(provisional, seeks=sought, chance=chance)

    def _formed(self, statement: Statement, compiler: Compiler) -> Compiled:
        """A statement, compiled against the catalog of a compiler."""
        return self.apart(compile_statement, statement, compiler, self._public_rows)

    def _again(self, statement: Statement) -> Statement:
        """A statement as it was before it was read, but for what is dpsql's own."""
        return self.apart(reparse, statement.fragment.body, statement.fragment.reader)

    def _is_listed(self, statement: Statement, error: ProgrammingError) -> bool:
        """True if a text is none of the keys that the catalog lists: the same is said without."""
        try:
            self._formed(statement, self.compiler)
        except Error as known:
            return known.code == error.code and known.span == error.span
        return False

    def _supposing(self, tables: dict[str, Table]) -> Catalog:
        """The catalog with other tables, of which what statements derive is not remembered."""
        return replace(self.known, tables=tables, derived={})

    def foresee(self, statements: Sequence[Statement]) -> None:
        """Refuse what will be wrong about SELECTs whatever is found before they are asked.

        Raises: ProgrammingError, NotSupportedError.
        """
        compiler = Compiler(self._supposing(with_one_key(self.known.tables, bounds=True)))
        for statement in statements:
            try:
                self._formed(self._again(statement), compiler)
            except ProgrammingError as error:
                if error.code != NO_SUCH_KEY:
                    raise

    def _public_rows(self, table: Table) -> dict[str, tuple[str, Sequence[Any]]]:
        """The rows of a public table, read once."""
        if table.name not in self._public:
            with AsyncInterrupts(ends=False):  # sources are shared: a read ends where it looks
                self._public[table.name] = self.read_public(table)
        return self._public[table.name]

    def ask(self, workload: Sequence[Compiled], terms: Terms, default: Fraction | None) -> Request:
        """Form a request as ``form_request`` does; the same one for the same compiled statements.

        A small one is kept with its statements: their places in memory are its name. Raises: as
        that, and then nothing is kept.
        """
        name = tuple(map(id, workload))
        known = self._asked.get(name)
        if known is not None and (known.terms, known.default) == (terms, default):
            return known.request
        request = form_request(
            workload, terms, default, lambda *asked: self.apart(least_of, *asked, self.compiler)
        )
        if max(request.size.fields, request.size.cells) <= SMALL:
            while len(self._asked) >= ASKED:
                del self._asked[next(iter(self._asked))]
            self._asked[name] = CachedRequest(terms, default, request)
        return request

    def plan(self, request: Request) -> PlannedRequest:
        """The plan of a request, which one that is kept keeps, unless more was to be tried.

        Strategies are remembered beside, by what they depend on. Raises: as ``make_plan``.
        """
        known = self._asked.get(tuple(map(id, request.statements)))
        if known is not None and known.request is request and known.planned is not None:
            return known.planned
        planned = self.apart(make_plan, request)
        if known is not None and known.request is request and not planned.is_cut:
            known.planned = planned
        return planned

    def scopes(self, tables: Iterable[str], released: Iterable[str] = ()) -> tuple[str, ...]:
        """A name for each table as it is now: its catalog, its ledger and its data version.

        Then one for each domain that had to be found.
        """
        named = list(tables)
        return self._scopes([(each, self.versions([each])[0]) for each in named], released)

    def _each_scope(
        self, tables: Sequence[str], versions: Sequence[Versions], released: Iterable[str]
    ) -> list[tuple[str, ...]]:
        """``scopes`` by digests of each kind."""
        kinds = [zip(tables, kind, strict=True) for kind in zip(*versions, strict=True)]
        return [self._scopes(kind, released) for kind in kinds]

    def _scopes(
        self, versions: Iterable[tuple[str, str]], released: Iterable[str]
    ) -> tuple[str, ...]:
        always = (self.ledger_id, self.meaning)
        facts = [repr((*always, *pair)) for pair in versions]
        facts += [repr((*always, domain)) for domain in released]
        return tuple(hashlib.sha256(fact.encode()).hexdigest() for fact in facts)

    def aged(self, found: Iterable[Discovered]) -> tuple[str, ...]:
        """Return the notes on domains and bounds that were found in earlier data."""
        return tuple(
            f"{each.what.lower()} {each.name} {'is' if each.what == 'DOMAIN' else 'are'} of an "
            f"earlier version of {each.table} (entry {each.receipt[1]} of the ledger)"
            for each in found
            if each.data not in self.versions([each.table])
        )

    def unread_notes(self, tables: Iterable[str]) -> tuple[str, ...]:
        """Return the notes on tables whose rows cannot be read at present."""
        titles = [self.known.find(table).title for table in tables if table in self.unread]
        return tuple(f"{title} cannot be read at present: {UNREAD}" for title in titles)

    def request_names(self, request: Request) -> tuple[str, ...]:
        """Names of identical requests on the same data, by digests of each kind."""
        return self.known_by(request)[0]

    def known_by(self, request: Request) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """Names of identical requests on the same data, and the scopes of its tables.

        Both by digests of each kind, the one that is stored now first.
        """
        tables = list(request.tables)
        each = [self.versions([table]) for table in tables]
        versions = each[0] if len(each) == 1 else self.versions(tables)
        names = [
            hashlib.sha256(
                repr([self.ledger_id, request.fingerprint(), version, self.meaning]).encode()
            ).hexdigest()
            for version in versions
        ]
        return tuple(names), tuple(self._each_scope(tables, each, request.released))

    def run_names(self, fingerprint: str, tables: Iterable[str]) -> tuple[str, ...]:
        """Names of identical plans or runs on the same data, by digests of each kind."""
        named = list(tables)
        kinds = self._each_scope(named, [self.versions([each]) for each in named], ())
        return tuple(
            hashlib.sha256(repr((fingerprint, scopes)).encode()).hexdigest() for scopes in kinds
        )

    def within(self, tables: Iterable[str]) -> tuple[str, ...]:
        """The budgets that a request on tables is charged to, each in full, beside the whole."""
        names = nested_budgets(self.catalog, tables, self.analyst)
        return (*names, SCRATCH) if self.scratch and self.catalog.scratch is not None else names

    def remaining(self, tables: Iterable[str]) -> Fraction:
        """The largest epsilon that one more request on tables may ask for."""
        return self.status().remaining_within(self.within(tables))


def told_apart(made: Iterable[S]) -> list[S]:
    """Return things by names of their own: one that has another's gets the number of its entry.

    Several analysts may each have one of a name where they do not see each other's.
    """
    found, taken = list[S](), set[tuple[str, str]]()
    for each in made:
        kind = each.what if isinstance(each, Discovered) else ""
        if not (isinstance(each, Discovered) and each.dropped):
            while (kind, each.name.casefold()) in taken:
                each = replace(each, name=f"{each.name}_{each.receipt[1]}")
            taken.add((kind, each.name.casefold()))
        found.append(each)
    return found


def _bytes_of(item: Compiled) -> int:
    """About how many bytes are kept with a statement: its keys, its factors, and their making."""
    found, parts = OWN + len(item.text), dict[int, Any]()
    for select in item.selects:
        width = len(select.query.keys) + len(select.query.aggregates)
        found += FIELD * width * sum(branch.rows for branch in select.branches)
        for answer in select.answers:
            for term in (*answer.whole, *(answer.apart or ())):
                parts |= {id(each): each for each in (*term.factors.values(), term.pattern)}
    return found + sum(map(_bytes_in, parts.values()))


def _bytes_in(made: Any) -> int:
    """The bytes of the arrays in an operator or a pattern, and for the cells that one is over."""
    if isinstance(made, Mapping):
        return sum(map(_bytes_in, made.values()))
    if not isinstance(made, Operator | Pattern):
        return made.nbytes if isinstance(made, np.ndarray) else 0
    cells = NUMBER * made.shape[1] if isinstance(made, Operator) else 0
    return cells + sum(_bytes_in(getattr(made, each.name)) for each in fields(cast(Any, made)))
