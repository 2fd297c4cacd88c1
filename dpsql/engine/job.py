"""A job: what answers some statements, whatever their kind.

There are five: a workload that public facts answer, one for the matrix mechanism, clipped sums, the
choice of a threshold, and a learned model. ``Engine.run`` takes each of them the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from numpy.typing import NDArray

from dpsql.answer.result import Result
from dpsql.answer.store import StoreTable
from dpsql.engine.disk_space import FEW
from dpsql.engine.planner import Planner
from dpsql.errors import DataUnavailable
from dpsql.plan.plan import Plan
from dpsql.privacy.budget.accounting import Cost, Policy, cost_of
from dpsql.privacy.budget.receipt import Receipt
from dpsql.records import dataclass, field, replace
from dpsql.relation.row_view import RowView
from dpsql.strategy.noise_law import Noise, law

if TYPE_CHECKING:
    from dpsql.catalog.discovery import Key, Sought
    from dpsql.engine.explanation import Explanation
    from dpsql.privacy.doors.discovery import CountedDiscovery, Discovery, KeyCounts
    from dpsql.privacy.doors.privacy_filter import Run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a step: epsilon, and rho for noise that is counted in it.

    ``tables`` are those whose data are opened, as often as there are parts; ``fingerprint`` names
    the plan or run that the receipt is good for; ``reads`` are the columns that it reads of each
    table, None for all, and ``sought`` the table and the column of which it finds keys. ``delta``
    is the chance with which keys that are released may break the promise.
    """

    tables: tuple[str, ...]
    noise: Noise
    epsilon: Fraction
    rho: Fraction | None
    fingerprint: str
    reads: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    delta: Fraction = Fraction(0)
    sought: tuple[str, str, Sought] | None = None

    def cost(self, policy: Policy) -> Cost:
        """Return the charge by the ledger of a policy. Raises: DataError (E_EPSILON, E_DELTA)."""
        return cost_of(policy, self.noise, self.epsilon, self.rho, self.delta)


class Charge(NamedTuple):
    """The ledger's charge for a price, and the nested budgets that are charged too."""

    cost: Cost
    within: tuple[str, ...]


class Doors(Protocol):
    """The membrane as a job meets it: what would be refused, and three doors to noisy numbers."""

    def afford(self, price: Price) -> Charge:
        """Return the charge. Refuses what the ledger would, and noise that cannot be drawn.

        Raises: BudgetExceeded, LedgerError; OperationalError (E_NOISE, E_BACKEND).
        """

    def certify(self, plan: Plan) -> None:
        """Refuse a plan that does not fit the tables. Raises: ProgrammingError (E_WORKLOAD)."""

    def measure(self, plan: Plan, receipt: Receipt) -> tuple[tuple[NDArray[Any], ...], ...]:
        """The noisy integers of a plan, part by part and block by block."""

    def look(self, run: Run, receipt: Receipt) -> AbstractContextManager[Any]:
        """A handle that looks several times, within what was paid."""

    def find(self, asked: Discovery, receipt: Receipt) -> tuple[Key, ...]:
        """The keys of a column that enough privacy units have, sorted."""

    def count(self, asked: CountedDiscovery, receipt: Receipt) -> KeyCounts:
        """The keys whose noisy counts of privacy units reach a threshold, and these counts."""


class Step(ABC, Generic[T]):
    """One step: its price, its key, and its way through a door.

    ``T`` is what is published of it, and stored. All but ``perform`` see public facts and what was
    published before.
    """

    __slots__ = ()

    @property
    def fresh(self) -> bool:
        """True if it is taken anew, whatever was published."""
        return False

    @property
    def is_long(self) -> bool:
        """True if it looks for so long that others should not wait for the rows meanwhile."""
        return False

    @property
    @abstractmethod
    def asked(self) -> tuple[str, ...]:
        """The statements, as the ledger notes them."""

    @property
    @abstractmethod
    def price(self) -> Price:
        """The price of the step."""

    @property
    def room(self) -> int:
        """The bytes that have to be free on the disk for what comes of it."""
        return FEW

    @abstractmethod
    def shelf(self, planner: Planner) -> StoreTable[T]:
        """Return the shelf on which its results are published."""

    @abstractmethod
    def keys(self, planner: Planner) -> tuple[str, ...]:
        """Keys of identical steps on the same data: the one it is stored under first."""

    def key(self, planner: Planner) -> str:
        """The key that it is stored under."""
        return self.keys(planner)[0]

    def find(self, planner: Planner) -> T | None:
        """Find a published result that will do, for free."""
        shelf = self.shelf(planner)
        found = (shelf.find(key) for key in self.keys(planner))
        return next((each for each in found if each is not None), None)

    def taken(self, planner: Planner, found: T) -> T:
        """The published result that will do, once it is taken."""
        return found

    def known(self, planner: Planner) -> T | None:
        """Find a published result without waiting for other threads that work on the same step."""
        return self.find(planner)

    def check(self, planner: Planner, doors: Doors) -> None:
        """Refuse, before anything is charged, what its price does not tell."""

    @abstractmethod
    def perform(self, planner: Planner, doors: Doors, receipt: Receipt) -> T:
        """Go through a door, once."""

    def keep(self, planner: Planner, found: T) -> T:
        """Store what was paid for, and return it as stored."""
        return self.shelf(planner).add(self.key(planner), found)


class Job(Step[T]):
    """The job of answering some statements: a step, and what follows from it."""

    __slots__ = ()

    def decided(self, planner: Planner) -> Job[T]:
        """The job once public facts and what is published have decided how it is done."""
        return self

    def following(self, planner: Planner, found: T, free: bool) -> Job[Any] | None:
        """The job that answers with what this one has found; None where it answers itself."""
        return None

    @abstractmethod
    def results(self, planner: Planner, found: T, free: bool) -> tuple[Result, ...]:
        """One result for each statement."""

    @abstractmethod
    def explain(self, planner: Planner, assumed: bool) -> Explanation:
        """The forecast; ``assumed`` says that no epsilon was set."""

    def foreseen(self, planner: Planner) -> T | None:
        """Find what will answer it for free; nothing while the data cannot be opened."""
        try:
            return None if self.fresh else self.find(planner)
        except DataUnavailable:
            return None


class AdaptiveJob(Job[T]):
    """A job that looks several times through one handle: an adaptive run."""

    __slots__ = ()

    @property
    @abstractmethod
    def run(self) -> Run:
        """The run that the membrane is paid for."""

    @abstractmethod
    def learn(self, handle: Any, receipt: tuple[str, int, str]) -> T:
        """Return the result of the run, learned through the handle alone."""

    @property
    def earlier(self) -> tuple[Run, ...]:
        """The runs that earlier versions made of the same statement: what they told is owned."""
        return without_cells(self.run)

    def keys(self, planner: Planner) -> tuple[str, ...]:
        """Return the names that identical runs on the same data share."""
        named = [
            planner.run_names(run.fingerprint, [run.table]) for run in (self.run, *self.earlier)
        ]
        return tuple(name for names in named for name in names)

    def perform(self, planner: Planner, doors: Doors, receipt: Receipt) -> T:
        """Look; a run that fails stays paid."""
        with doors.look(self.run, receipt) as handle:
            return self.learn(handle, (receipt.ledger_id, receipt.seq, receipt.head))


def without_cells(run: Run) -> tuple[Run, ...]:
    """A run as earlier versions made it: units kept their first rows before conditions."""
    if run.rows is None or not run.rows.cells:
        return ()
    return (replace(run, rows=RowView(run.rows.columns)),)


def price_of_run(run: Run, epsilon: Fraction) -> Price:
    """Return the price of a run, whose whole amount is charged at once."""
    rho = None if law(run.noise).is_pure else run.amount
    reads = {run.table: run.reads}
    return Price((run.table,), run.noise, epsilon, rho, run.fingerprint, reads)


def price_of_plan(plan: Plan) -> Price:
    """Return the price of a plan."""
    tables = tuple(part.table for part in plan.parts)
    return Price(tables, plan.noise, plan.epsilon, plan.rho, plan.fingerprint, plan.reads)
