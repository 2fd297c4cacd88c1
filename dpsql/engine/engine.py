"""The engine: one journey for every job, from what is published to results.

SQL text -> Statement -> Query -> products -> Workload -> Strategy -> Forecast -> Receipt ->
Measurement -> Estimate -> Result. The first six see public facts only; there is one membrane.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.answer.numbers import DRAFT
from dpsql.answer.result import Result
from dpsql.catalog import Catalog, Table
from dpsql.engine.charges import DryRunDone
from dpsql.engine.disk_space import PLENTY, refuse_full
from dpsql.engine.granted_files import NOTHING, GrantedFiles
from dpsql.engine.job import Charge, Job, Price, Step
from dpsql.engine.planner import Planner, Versions
from dpsql.engine.request_locks import lock_request
from dpsql.engine.statements import explain_workload, read_job
from dpsql.engine.terms import Terms
from dpsql.errors import DataUnavailable, OperationalError
from dpsql.plan.plan import Plan
from dpsql.privacy.budget.curator_acts import ledger_file, open_ledger, user_folder
from dpsql.privacy.budget.hash_chain import subkey
from dpsql.privacy.budget.ledger import Entry, Ledger, Receipt, Status
from dpsql.privacy.budget.source_claims import Sources
from dpsql.privacy.doors.measure import certify, check_noise, measure
from dpsql.privacy.doors.vaults import Vaults, public_version, read_public, stored_in
from dpsql.records import replace
from dpsql.relation.derive import bases_of
from dpsql.sql.compiled import Compiled

if TYPE_CHECKING:
    from dpsql.answer.synthetic_tables import Synthetic
    from dpsql.catalog.discovery import Key
    from dpsql.engine.explanation import Explanation
    from dpsql.engine.key_search import KeySearch
    from dpsql.learn.task import Report
    from dpsql.privacy.doors.discovery import CountedDiscovery, Discovery, KeyCounts
    from dpsql.privacy.doors.privacy_filter import Run
    from dpsql.sql.text.synthetic import Materialisation

T = TypeVar("T")
PublicRows: TypeAlias = "dict[str, tuple[str, Sequence[Any]]]"
PublicVersion: TypeAlias = "tuple[Table, object]"


class Engine(Planner):
    """Answers workloads over one catalog; owns the ledger, and the vaults unless it shares them.

    ``shared`` is another engine over the same catalog, with whose threads it takes turns, and whose
    handle on the ledger it has; ``before`` is one over the catalog as it was, whose rows it counts
    if they are the same.
    """

    def __init__(
        self,
        catalog: Catalog,
        anchors: Path,
        analyst: str | None = None,
        granted: GrantedFiles = NOTHING,
        shared: Engine | None = None,
        before: Engine | None = None,
    ) -> None:
        ledger = Path(os.path.realpath(ledger_file(catalog)))
        self.sources = Sources(catalog, (anchors, user_folder()), ledger, stored_in)
        held = None if shared is None else shared.ledger
        verified = None if before is None else before.ledger
        self.ledger: Ledger = open_ledger(catalog, anchors, held=held, verified=verified)
        self.ledger_id = self.ledger.ledger_id
        self._is_alone = shared is None
        self.rehearses = False
        kept = shared or (before if before is not None and before.has_rows_of(catalog) else None)
        self.vaults: Vaults = Vaults(catalog, self.ledger.salt) if kept is None else kept.vaults
        one = shared or before
        self.public: dict[str, tuple[PublicVersion, PublicRows]] = {} if one is None else one.public
        super().__init__(catalog, analyst, granted, None if one is None else one.store)
        if one is not None:
            self.planning = one.planning

    def explain(self, workload: Sequence[Compiled], terms: Terms) -> Explanation:
        """The forecast of a workload: free, and a function of public facts only."""
        assumed = terms.epsilon is None
        offered = terms.having(epsilon=Fraction(1)) if assumed else terms
        seeking = self._seeking(workload, offered)
        if seeking is None:
            return explain_workload(self, workload, terms)
        if seeking.first is None and seeking.counted is None:
            return explain_workload(self, workload, seeking.rest)
        return seeking.explain(self, assumed)

    def answer(
        self, workload: Sequence[Compiled], terms: Terms, report: Report | None = None
    ) -> tuple[Result, ...]:
        """Answer a workload jointly; ``report`` hears of a long run. Raises: as ``run``.

        Keys that nobody listed are found before that, where statements want it.
        """
        seeking = self._seeking(workload, terms)
        if seeking is None:
            return self.run(read_job(self, workload, terms, report))
        if seeking.counted is not None:
            self.ledger.check()  # one that is missing or damaged answers nothing
            return (seeking.counts(self, seeking.counted, free=True),)
        if seeking.first is None:
            return self.run(read_job(self, workload, seeking.rest, report))
        seeking.check(self, Membrane(self, self.ledger, self._declared_vaults))
        found, was_there = self.settle(seeking.first)
        if was_there:  # others found them meanwhile
            return self.answer(seeking.compiled(self), terms, report)
        if found.counted is not None:
            return (seeking.counts(self, found, free=False),)
        results = self.run(read_job(self, seeking.compiled(self), seeking.rest, report))
        return tuple(seeking.told(result, found) for result in results)

    def _seeking(self, workload: Sequence[Compiled], terms: Terms) -> KeySearch | None:
        if not any(item.seeks for item in workload):
            return None
        from dpsql.engine.key_search import plan_seeking  # most keys are listed

        return plan_seeking(self, workload, terms)

    def run(self, job: Job[Any]) -> tuple[Result, ...]:
        """Answer what a job is for, from what is published or by charging for it once.

        Raises: BudgetExceeded, LedgerError, DataUnavailable; nothing is charged by a refusal.
        """
        with self.vaults.one_listing():
            job = job.decided(self)
            found, free = self.settle(job)
            after = job.following(self, found, free)
            if after is not None:
                return self.run(after)
            return self._marked(job.results(self, found, free))

    def _marked(self, results: tuple[Result, ...]) -> tuple[Result, ...]:
        """Results, each with a note that it is a draft where this is for drafts."""
        if not self.scratch:
            return results
        return tuple(replace(each, notes=(*each.notes, DRAFT)) for each in results)

    def settle(self, step: Step[T]) -> tuple[T, bool]:
        """Return the end of a step, and whether it was published: whoever does the same is awaited.

        Raises: as ``run``.
        """
        if step.fresh:
            return self._pay(step), False
        found = step.known(self)
        if found is None:
            with lock_request(step.shelf(self).file.path, step.key(self)):
                found = step.find(self)
                if found is None:
                    return self._pay(step), False
        if step.price.tables:
            self.ledger.check()  # one that is missing or damaged answers nothing, not even for free
        return step.taken(self, found), True

    def _pay(self, step: Step[T]) -> T:
        """Charge for a step, let it through its door, and store what it ends with.

        Guarantee: all that can be refused is refused before the debit, which is durable before
        noise is drawn; an interrupt waits until what was paid for is stored.
        Raises: DryRunDone in place of the debit, where that is all that is wanted.
        """
        price, vaults = step.price, self._declared_vaults
        doors = Membrane(self, self.ledger, vaults)
        charge = doors.afford(price)
        self.charges.refuse_dearer(charge.cost)
        step.check(self, doors)
        if shutil.disk_usage(self.catalog.path.parent).free < PLENTY:
            refuse_full(self.catalog.path, step.room)
        claim = self.sources.refuse if self.rehearses else self.sources.claim
        claim({table: vaults[table].sources for table in price.tables}, self.ledger_id)
        reads = price.tables, price.reads, price.sought
        is_long = step.is_long and not self._is_alone
        with vaults.lent(*reads, is_long) as lent:
            if self.rehearses:
                raise DryRunDone
            facts = (price.fingerprint, lent.versions(price.tables), charge.within)
            with self.charges.paid(self.ledger, charge.cost, *facts, step.asked) as receipt:
                return step.keep(
                    self, step.perform(self, Membrane(self, self.ledger, lent), receipt)
                )

    @property
    def _declared_vaults(self) -> Vaults:
        """The vaults of the tables as they are declared by now, with what was found."""
        return self.vaults.of(self.declared)

    def has_rows_of(self, catalog: Catalog) -> bool:
        """Say whether a catalog differs from the one in use in budgets alone."""
        mine = self.catalog
        budgets = mine.budget, mine.analysts, mine.scratch
        spent = replace(catalog, budget=budgets[0], analysts=budgets[1], scratch=budgets[2])
        return spent == mine

    def is_in_force(self) -> bool:
        """Say whether the ledger goes by the catalog of this engine. Raises: LedgerError."""
        return self.ledger.is_in_force()

    def check_sources(self) -> None:
        """Open every table as a run would, but read no row of a private one, and note nothing.

        Raises: DataUnavailable, CatalogError, LedgerError, as a run would before its charge.
        """
        tables = self.catalog.tables.values()
        private = [each.name.casefold() for each in tables if not each.public]
        vaults = self._declared_vaults
        opened = {table: vaults[table].sources for table in private}
        self.sources.refuse(opened, self.ledger_id)
        for each in tables:
            if each.public:
                self.read_public(each)

    def key_of(self, use: str) -> bytes:
        """A secret of the ledger for one use: the same as long as the ledger is, 32 bytes."""
        return subkey(self.ledger.salt, use)

    def status(self) -> Status:
        """Return the remainder of the budget."""
        return self.ledger.status()

    def entries(self) -> tuple[Entry, ...]:
        """Every charge so far."""
        return self.ledger.entries()

    def was_paid(self, seq: int, statements: Sequence[str]) -> bool:
        """True if an entry of the ledger was charged for these very statements."""
        found = self.ledger.entry(seq)
        return found is not None and found.is_for(statements)

    def paid_within(self, seq: int) -> tuple[str, ...]:
        """The budgets inside the whole one that an entry of the ledger was charged to."""
        found = self.ledger.entry(seq)
        return () if found is None or not found.within else tuple(found.within.split("\n"))

    def versions(self, tables: Iterable[str]) -> Versions:
        """Fingerprints that change with the data of these tables.

        While a source cannot be opened they are those that were seen last: what was paid for is
        answered, and nothing is measured. Raises: DataUnavailable where none was seen.
        """
        named, vaults = list(tables), self._declared_vaults
        releases = self.store.releases
        try:
            found = vaults.versions(named), vaults.earlier_versions(named)
        except DataUnavailable as error:
            known = releases.last_seen(self._named(named)) if error.code == "E_DATA" else None
            if known is None:
                raise
            self.unread.update(named)
            return known
        self.unread.difference_update(named)
        releases.see(self._named(named), found)
        return found

    def _named(self, tables: Sequence[str]) -> str:
        """A name for tables together and for where they are: another version may be stated."""
        facts = [
            (table, [(base.source, base.options) for base in bases_of(self.declared, [table])])
            for table in tables
        ]
        return hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()

    def is_readable(self) -> bool:
        """Say whether the source of every private table can be opened; no row is read."""
        vaults = self._declared_vaults
        vaults.reopen()
        try:
            for table in self.catalog.tables.values():
                if not table.public and not table.synthetic:
                    _ = vaults[table.name.casefold()].data_version
        except OperationalError:
            return False
        return True

    def read_public(self, table: Table) -> PublicRows:
        """The rows of a public table, read once for all sessions while its files stay."""
        self.sources.check_public(table)
        version, known = public_version(table), self.public.get(table.name)
        if version is not None and known is not None and known[0] == (table, version):
            return known[1]
        found = read_public(table)
        if version is not None and version == public_version(table):
            self.public[table.name] = (table, version), found
        return found

    def said_of(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Tell which servers have the rows that a plan measures, and what they will run."""
        return self._declared_vaults.said_of(plan)

    def stored_in(self, table: Table) -> tuple[str, ...]:
        """The files that hold the rows of a table. Raises: DataUnavailable."""
        return stored_in(table)[0]

    def draw(self, wanted: Materialisation) -> dict[str, list[Any]]:
        """Draw rows of a synthetic table, with fresh randomness every time; free.

        Raises: ProgrammingError (E_UNKNOWN_TABLE).
        """
        from dpsql.answer.model_answers import draw_rows  # few sessions draw rows
        from dpsql.answer.synthetic_tables import find_synthetic

        synthetic = find_synthetic(self.models, wanted.name)
        table = self.known.tables[synthetic.name.casefold()]
        return draw_rows(synthetic.model, table, wanted.rows, np.random.default_rng())

    def refit(self, name: str, work: float) -> Synthetic:
        """Fit the model of a synthetic table further, and store it under a name with a number.

        Raises: ProgrammingError (E_UNKNOWN_TABLE, E_STATEMENT).
        """
        from dpsql.answer.synthetic_tables import (
            find_synthetic,  # few sessions fit anything further
        )

        found = find_synthetic(self.models, name).refit(work)
        stored = self.store.tables.add(self.table_key(found.name), found)
        self.know()
        return stored

    @property
    def standing(self) -> int | None:
        """The version of the rows that are counted; None where they are of the past."""
        return self.vaults.standing

    def reopen(self) -> None:
        """Let go of rows that are not as they were: the next statement reads them as they are."""
        self.vaults.reopen()

    def close(self) -> None:
        """Release files and connections, but for the vaults and the ledger that others use."""
        if not self._is_alone:
            self.ledger.note_outcomes()
            return
        self.vaults.close()
        self.ledger.close()


class Membrane:
    """The three doors of one engine, for one job."""

    def __init__(self, planner: Planner, ledger: Ledger, vaults: Vaults) -> None:
        self._planner = planner
        self._ledger = ledger
        self._vaults = vaults

    def afford(self, price: Price) -> Charge:
        """Return the charge. Refuses what the ledger would, and noise that cannot be drawn.

        Raises: BudgetExceeded, LedgerError; OperationalError (E_NOISE, E_BACKEND).
        """
        charge = Charge(price.cost(self._ledger.policy), self._planner.within(price.tables))
        self._ledger.afford(*charge)
        check_noise(price.noise, self._vaults)
        return charge

    def certify(self, plan: Plan) -> None:
        """Refuse a plan that does not fit the tables. Raises: ProgrammingError (E_WORKLOAD)."""
        certify(plan, self._vaults)

    def measure(self, plan: Plan, receipt: Receipt) -> tuple[tuple[NDArray[Any], ...], ...]:
        """The noisy integers of a plan, part by part and block by block."""
        return tuple(item.values for item in measure(plan, receipt, self._vaults))

    @contextmanager
    def look(self, run: Run, receipt: Receipt) -> Iterator[Any]:
        """A handle that looks several times, within what was paid."""
        from dpsql.privacy.doors.look import open_handle, open_sums  # most jobs measure once

        seen = run.seen
        vaults = self._vaults if seen is None else self._vaults.seeing(run.table, seen)
        try:
            door = (run, receipt, vaults)
            handle = open_handle(*door) if run.view is None else open_sums(*door)
            try:
                yield handle
            finally:
                handle.close()
        finally:
            if vaults is not self._vaults:
                vaults.close()

    def find(self, asked: Discovery, receipt: Receipt) -> tuple[Key, ...]:
        """The keys of a column that enough privacy units have, sorted."""
        from dpsql.privacy.doors.find_keys import find_keys  # most keys are listed

        return find_keys(asked, receipt, self._vaults)

    def count(self, asked: CountedDiscovery, receipt: Receipt) -> KeyCounts:
        """The keys whose noisy counts of privacy units reach a threshold, and these counts."""
        from dpsql.privacy.doors.find_keys import count_keys  # most keys are listed

        return count_keys(asked, receipt, self._vaults)
