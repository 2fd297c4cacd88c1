"""CREATE DOMAIN and CREATE BOUNDS: what nobody listed is found once, paid for and declared."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NoReturn

import numpy as np

from dpsql.algebra.blocks import Dense
from dpsql.answer.discovered import Discovered, current
from dpsql.answer.result import CostInfo, ReceiptInfo, Result, listing, message
from dpsql.answer.store import StoreTable
from dpsql.catalog import Column, Table
from dpsql.catalog.catalog import SERVERS
from dpsql.catalog.composite_keys import MOST_PARTS, joint_column, parts_of
from dpsql.catalog.discovery import KEYS, Key
from dpsql.catalog.domain import Bins
from dpsql.engine.explanation import Explanation, Row
from dpsql.engine.job import Doors, Job, Price, price_of_run
from dpsql.engine.planner import Planner
from dpsql.engine.terms import Terms, require_epsilon
from dpsql.errors import DataError, ProgrammingError, decimal_text, printable
from dpsql.learn.thresholds import enclosing, powers
from dpsql.privacy.budget.accounting import budget_for
from dpsql.privacy.budget.curator_acts import analyst_name
from dpsql.privacy.budget.receipt import Receipt
from dpsql.privacy.doors.discovery import Discovery
from dpsql.privacy.doors.privacy_filter import Run
from dpsql.privacy.noise.partition_selection import (
    CHANCE_BITS,
    LEAST_EPSILON,
    WEIGHT_BITS,
    chances,
    threshold,
)
from dpsql.records import dataclass, replace
from dpsql.relation.row_view import RowView, left_out
from dpsql.settings.table import SETTINGS
from dpsql.sql.text.create_domain import Search
from dpsql.strategy.noise_law import AUTO, GAUSSIAN, LAPLACE, Noise, law
from dpsql.workload.workload import Product

THERE = "{} {} was found before: free"


@dataclass(frozen=True, slots=True, eq=False)
class DiscoveryJob(Job[Discovered]):
    """The search for keys or for bounds: a column, its price, and where what is found is kept."""

    search: Search
    table: Table
    column: Column
    noise: Noise
    epsilon: Fraction
    amount: Fraction
    anew: bool

    @property
    def asked(self) -> tuple[str, ...]:
        """The statement, as the ledger notes it."""
        return (self.search.text,)

    def shelf(self, planner: Planner) -> StoreTable[Discovered]:
        """Return the shelf of domains."""
        return planner.store.domains

    def keys(self, planner: Planner) -> tuple[str, ...]:
        """One for all: who else finds anything is awaited, for its column and its name."""
        return ("found",)

    def find(self, planner: Planner) -> Discovered | None:
        """Return an earlier find of the column, which is not repeated, where that was allowed for.

        Raises: ProgrammingError (E_STATEMENT), where it was not.
        """
        planner.know()
        known = found_before(planner, self.search)
        if known is None:
            check_free(self.search, self.table, self.column, planner.found)
            known = self._dropped(planner)
        return known

    def taken(self, planner: Planner, found: Discovered) -> Discovered:
        """The domain that was found; where it was dropped, it is declared again."""
        return self.keep(planner, replace(found, dropped=False)) if found.dropped else found

    def _dropped(self, planner: Planner) -> Discovered | None:
        """A domain found on the same terms in the same data and dropped since: it is paid for."""
        if self.anew or not any(each.dropped for each in planner.found.values()):
            return None
        terms = (self.search.what, *self._place, self.noise, self.epsilon)
        stated = "discovery_delta" in dict(self.search.options)
        versions = planner.versions([self._place[0]])
        for each in planner.found.values():
            same = (each.what, each.table, each.column, each.noise, each.epsilon)
            is_counted = (each.counted is not None) == self.is_counted
            if stated and each.delta != self.price.delta:
                continue
            if each.dropped and is_counted and same == terms and each.data in versions:
                return replace(each, name=self.search.name)
        return None

    @property
    def is_counted(self) -> bool:
        """True if keys come with their counts."""
        return False

    def keep(self, planner: Planner, found: Discovered) -> Discovered:
        """Store what was found, and know it from now on."""
        made = self.shelf(planner).add(found.head, found)
        planner.know()
        return made

    def made(
        self,
        planner: Planner,
        receipt: tuple[str, int, str],
        keys: tuple[Key, ...] = (),
        bounds: tuple[Fraction, Fraction] | None = None,
    ) -> Discovered:
        """The release of what was found."""
        return Discovered(
            self.search.what,
            self.search.name,
            *self._place,
            keys,
            bounds,
            self.epsilon,
            self.price.delta,
            self.noise,
            planner.versions([self._place[0]])[0],
            receipt,
            self.facts()[1:],
            joint=bool(parts_of(self.column)),
        )

    @property
    def _place(self) -> tuple[str, str]:
        return self.table.name.casefold(), self.column.name.casefold()

    @abstractmethod
    def facts(self) -> tuple[Row, ...]:
        """Return the public facts of it."""

    @property
    @abstractmethod
    def standing(self) -> tuple[str, ...]:
        """Sentences on the rows that do not count."""

    def results(self, planner: Planner, found: Discovered, free: bool) -> tuple[Result, ...]:
        """Return the find and its cost; where others found it, that they did."""
        if free:
            what = THERE.format(found.what.lower(), found.name)
            return (message(what, self.search.text),)
        rows = found.rows()
        result = listing((found.what.lower(), found.name), rows, self.search.text)
        cost = CostInfo(found.epsilon, found.delta, found.noise, False)
        nothing = () if found.keys or found.bounds else (NOTHING_FOUND.format(found.what),)
        notes, receipt = (*nothing, *self.standing), ReceiptInfo(*found.receipt)
        result = replace(result, cost=cost, receipt=receipt, notes=notes)
        return (replace(result, standing=self.standing),)

    def explain(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast: from public facts only."""
        remaining = planner.remaining([self._place[0]])
        cost = f"epsilon {decimal_text(self.epsilon)} ({self.noise})"
        cost += " (assumed)" if assumed else ""
        if self.price.delta:
            left = planner.status().discovery_left(planner.within([self._place[0]]))
            cost += f", discovery_delta {float(self.price.delta):g} of {float(left):g}"
        cost += f"; at most {decimal_text(remaining)} can still be asked for"
        known = self.foreseen(planner)
        if known is not None:
            cost = f"free: from entry {known.receipt[1]} of the ledger"
        rows = (*self.facts(), *(("left out", note) for note in self.standing), ("cost", cost))
        what = "keys" if self.search.what == "DOMAIN" else "bounds"
        paid, nothing = (self.epsilon, self.price.delta), math.nan
        told = (self.noise, *paid, nothing, (), known is not None, assumed, remaining)
        entry = None if known is None else known.receipt[1]
        return Explanation((), what, *told, entry, whole=rows)


NOTHING_FOUND = "nothing stood out: DROP {} and more epsilon, or declare the column in the catalog"

NO_KEY = "rows whose {} is not {} have no key"
NO_BIN = "rows whose {} is not a number from {:g} to {:g} are left out"


@dataclass(frozen=True, slots=True, eq=False)
class KeyDiscoveryJob(DiscoveryJob):
    """CREATE DOMAIN: the keys that enough privacy units have."""

    chance: Fraction

    @property
    def discovery(self) -> Discovery:
        """The discovery that the membrane is paid for."""
        assert self.column.sought is not None
        sought, amounts = self.column.sought, (self.amount, self.chance)
        return Discovery(*self._place, sought, self.noise, *amounts)

    @property
    def price(self) -> Price:
        """The price of the discovery."""
        rho = None if law(self.noise).is_pure else self.amount
        table, name = self._place[0], self.discovery.fingerprint
        reads = {table: frozenset[str]()}
        sought = (*self._place, self.discovery.sought)
        return Price((table,), self.noise, self.epsilon, rho, name, reads, self.chance, sought)

    def perform(self, planner: Planner, doors: Doors, receipt: Receipt) -> Discovered:
        """Find the keys; what fails stays paid."""
        keys = doors.find(self.discovery, receipt)
        return self.made(planner, (receipt.ledger_id, receipt.seq, receipt.head), keys)

    def facts(self) -> tuple[Row, ...]:
        """Describe the choice of keys, and the units that one needs: not how many will be found."""
        assert self.column.sought is not None
        most = self.column.sought.max_keys
        whose = self.table.unit.column or "row"
        keys = "its key counts" if most == 1 else f"at most {most} keys count"
        name = "truncated geometric" if law(self.noise).is_pure else "Gaussian, 1/sqrt(keys)"
        return (
            ("column", f"{self.table.name}.{self.column.name}: of each {whose} {keys}"),
            ("mechanism", name),
            ("found", _needed(self.discovery)),
        )

    @property
    def standing(self) -> tuple[str, ...]:
        """Lines, units and values that have no key."""
        assert self.column.sought is not None
        parts = self.column.sought.names or (self.column.name.casefold(),)
        columns = [self.table.columns[part] for part in parts]
        most = (self.column.sought.max_keys, printable(self.column.name))
        return (
            *_without_view(self.table, most),
            *(NO_KEY.format(printable(each.name), KEYS[each.type]) for each in columns),
        )


@dataclass(frozen=True, slots=True, eq=False)
class BoundDiscoveryJob(DiscoveryJob):
    """CREATE BOUNDS: powers of two between which the values of a measure lie, but for a few."""

    @property
    def edges(self) -> tuple[Fraction, ...]:
        """The public bins that are looked at."""
        return powers(self.column.type == "integer")

    @property
    def run(self) -> Run:
        """The run that the membrane is paid for."""
        table, name = self._place
        seen = replace(self.column, domain=Bins(self.edges), sought=None)
        classes = {name: np.arange(seen.size, dtype=np.int64)}
        unit = self.table.unit.max_rows
        run = Run(table, classes, self.noise, self.amount, unit, "bounds")
        return replace(run, rows=RowView((name,)), seen=seen)

    @property
    def price(self) -> Price:
        """The price of the run."""
        return price_of_run(self.run, self.epsilon)

    def perform(self, planner: Planner, doors: Doors, receipt: Receipt) -> Discovered:
        """Look at the bins once; what fails stays paid."""
        name, size = self._place[1], len(self.edges) - 1
        with doors.look(self.run, receipt) as handle:
            cells = np.eye(size, self.run.seen.size if self.run.seen else size, dtype=np.int64)
            (measured,) = handle.measure([(Product({name: Dense(cells)}),)], self.amount)
        bounds = enclosing(measured, self.edges)
        return self.made(planner, (receipt.ledger_id, receipt.seq, receipt.head), (), bounds)

    def facts(self) -> tuple[Row, ...]:
        """Describe the choice of bounds."""
        first, last = self.edges[0], self.edges[-1]
        bins = f"{len(self.edges) - 1} bins between powers of two, {float(first):g} to"
        return (
            ("column", f"{self.table.name}.{self.column.name}"),
            ("mechanism", f"approximate bounds: {bins} {float(last):g}"),
            ("found", "the outermost bins with noisily more rows than empty ones would show"),
        )

    @property
    def standing(self) -> tuple[str, ...]:
        """Lines, units and values that are in no bin."""
        ends = (float(self.edges[0]), float(self.edges[-1]))
        return (*_without_view(self.table), NO_BIN.format(printable(self.column.name), *ends))


def _without_view(table: Table, keys: tuple[int, str] | None = None) -> tuple[str, ...]:
    """Sentences on rows that do not count, whatever is in their columns."""
    said = left_out(table, RowView(()), keys)
    return () if said is None else (said,)


def _needed(asked: Discovery) -> str:
    """From how many privacy units on a key is found, in words."""
    most = asked.sought.max_keys
    if asked.is_pure:
        table = chances(asked.amount / most, asked.delta / most)
        half = next(n for n, p in enumerate(table) if 2 * p >= 1 << CHANCE_BITS)
        sure = f"from {len(table) - 1:,} on always"
        return f"a key that {half:,} have is released every other time, {sure}"
    level = threshold(asked.amount, asked.delta, most) / (1 << WEIGHT_BITS)
    few, many = math.ceil(level), math.ceil(level * math.sqrt(most))
    told = f"a key that {few:,} have is released every other time if they have no other"
    return told + (f", {many:,} if they have {most}" if most > 1 else "")


def check_free(
    search: Search, table: Table, column: Column, found: Mapping[str, Discovered]
) -> None:
    """Refuse a column of which something was found, and a name that is taken or is none.

    Raises: ProgrammingError (E_STATEMENT).
    """
    for each in current(found, table.name.casefold()):
        if each.column == column.name.casefold():
            raise ProgrammingError(
                "E_STATEMENT",
                f"column {column.name} of {table.name} has {each.what.lower()} {each.name} already",
                hint=f"it is free to use; who paid for it can DROP {each.what} {each.name}",
            )
    for each in found.values():
        taken = each.name.casefold() == search.name.casefold() and each.what == search.what
        if taken and not each.dropped:
            _refuse("E_STATEMENT", f"the name {printable(search.name)!r} is taken", "another name")
    if not search.name.isidentifier() or len(search.name) > 64:
        what = f"{printable(search.name)!r} is no name for {search.what.lower()}"
        _refuse("E_STATEMENT", what, "letters and digits")


def found_before(planner: Planner, search: Search) -> Discovered | None:
    """Return the find to which CREATE ... IF NOT EXISTS adds nothing; None for another CREATE."""
    parts = {name.casefold() for name in search.columns}
    place = (search.table.casefold(), parts, search.what)
    known = [each for each in planner.found.values() if not each.dropped and search.lenient]
    return next((e for e in known if (e.table, {*e.parts}, e.what) == place), None)


def plan_search(
    planner: Planner, search: Search, terms: Terms
) -> KeyDiscoveryJob | BoundDiscoveryJob:
    """Read CREATE DOMAIN or CREATE BOUNDS: a function of public facts only.

    Raises: ProgrammingError, DataError.
    """
    table, column = _find_column(planner, search)
    check_free(search, table, column, planner.found)
    options = dict(search.options)
    chance = options.pop("discovery_delta", None)
    for name, text in options.items():
        terms = terms.with_text(name, text)
    epsilon = require_epsilon(terms)
    if search.what == "BOUNDS":
        if chance is not None:
            _refuse("E_SETTING", "bounds need no discovery_delta", "leave it out")
        noise = LAPLACE.name if terms.noise == AUTO else terms.noise
        amount = _amount(noise, epsilon, terms.delta)
        return BoundDiscoveryJob(search, table, column, noise, epsilon, amount, terms.fresh)
    assert column.sought is not None
    most = column.sought.max_keys
    noise = terms.noise
    if noise == AUTO:
        noise = GAUSSIAN.name if most > 1 and terms.delta else LAPLACE.name
    if noise not in (LAPLACE.name, GAUSSIAN.name):
        _refuse("E_NOISE", f"keys are not found by noise = {noise}", "laplace or gaussian")
    if law(noise).is_pure and epsilon / most < LEAST_EPSILON:
        least = decimal_text(LEAST_EPSILON * most)
        raise DataError("E_EPSILON", "epsilon is too small to find keys", hint=f"{least} or more")
    place = planner.within([table.name.casefold()])
    usual = planner.status().discovery_part(place, epsilon)
    part = usual if chance is None else SETTINGS["discovery_delta"].read(chance)
    if not part:
        raise DataError(
            "E_DELTA",
            "keys can be found only with a chance above 0 of a rare one, and none is set apart",
            hint="discovery_delta in [budget], a part of delta: half of it, for instance",
        )
    amount = _amount(noise, epsilon, terms.delta)
    return KeyDiscoveryJob(search, table, column, noise, epsilon, amount, terms.fresh, part)


def _amount(noise: Noise, epsilon: Fraction, delta: Fraction) -> Fraction:
    if not law(noise).is_pure and not delta:
        raise DataError("E_DELTA", "Gaussian noise needs a delta above 0", hint="SET delta = 1e-9")
    return budget_for(noise, epsilon, delta)


def _find_column(planner: Planner, search: Search) -> tuple[Table, Column]:
    table = planner.catalog.tables.get(search.table.casefold())
    if table is None or table.public:
        names = ", ".join(t.name for t in planner.catalog.tables.values() if not t.public)
        what = f"there is no private table {printable(search.table)!r} in the catalog"
        _refuse("E_UNKNOWN_TABLE", what, f"tables: {names}")
    columns = [_find_part(table, name, search.what) for name in search.columns]
    return table, columns[0] if len(columns) == 1 else _together(table, columns)


def _together(table: Table, columns: Sequence[Column]) -> Column:
    """The column that several make together, of which keys are found at once."""
    names = {column.name.casefold() for column in columns}
    if len(names) < len(columns) or len(columns) > MOST_PARTS:
        what = f"keys of {len(columns)} columns together"
        _refuse("E_DOMAIN", what, f"two or {MOST_PARTS} different columns")
    if any(column.type not in ("text", "integer") for column in columns):
        _refuse("E_DOMAIN", "keys of several columns are texts and integers", "a domain of its own")
    if table.engine in SERVERS:
        what = "keys of several columns are found in files"
        _refuse("E_DOMAIN", what, "one domain for each column")
    order = list(table.columns.values())
    return joint_column(sorted(columns, key=order.index))


def _find_part(table: Table, name: str, wanted: str) -> Column:
    column = table.columns.get(name.casefold())
    what = "keys" if wanted == "DOMAIN" else "bounds"
    entry = "domain" if what == "keys" else "bounds"
    if column is None:
        what = f"there is no column {printable(name)!r} in table {table.name}"
        _refuse(
            "E_UNKNOWN_COLUMN",
            what,
            f"columns: {', '.join(c.name for c in table.columns.values())}",
        )
    if column.sought is None or column.sought.what != what:
        _refuse(
            "E_DOMAIN",
            f"column {column.name} is not declared as one whose {what} are to be found",
            f'{column.name} = {{ type = "{column.type}", {entry} = "discover" }} in the catalog',
        )
    return column


def _refuse(code: str, what: str, hint: str) -> NoReturn:
    raise ProgrammingError(code, what, hint=hint)


def forget(planner: Planner, found: Discovered) -> None:
    """Forget a domain, or bounds: its column is as it was, and what it cost stays spent.

    Where analysts are declared, those of one are not another's to forget, nor those by which
    another has measured, clipped or learned. Found again on the same terms they are free.
    Raises: ProgrammingError (E_STATEMENT).
    """
    if planner.analyst is not None:
        own, (scope,) = analyst_name(planner.analyst), planner.scopes((), [found.told])
        what = f"{found.what.lower()} {printable(found.name)}"
        if own not in planner.paid_within(found.receipt[1]):
            hint = "whoever paid for it, or the curator, can drop it"
            _refuse("E_STATEMENT", f"{what} was paid for by another analyst", hint)
        if any(own not in planner.paid_within(seq) for seq in planner.store.built_on(found, scope)):
            hint = "the curator can drop it"
            _refuse("E_STATEMENT", f"another analyst has paid for answers over {what}", hint)
    planner.store.domains.add(found.head, replace(found, dropped=True))
    planner.know()
