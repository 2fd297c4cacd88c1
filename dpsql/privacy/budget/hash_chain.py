"""The ledger's entries as a hash chain, and the budget state that they add up to."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from dpsql.errors import DataError, decimal_text
from dpsql.privacy.budget.accounting import Cost, Policy
from dpsql.privacy.budget.budget_sums import BudgetSums
from dpsql.privacy.budget.refusals import tampered, unchangeable, unrecoverable
from dpsql.records import dataclass, field, replace

Kind = Literal["created", "debit", "policy", "adopted"]
Outcome = Literal["reserved", "released", "failed"]

ANALYST = "analyst:"
"""The prefix of the names of analysts' budgets."""

WHOLE = ""
"""Name of the budget that every debit is charged to."""

LEAST_PART = Fraction(1, 10)
"""Part of discovery_delta, or of an analyst's, that a request may take, however small it is: one of
a small epsilon is not to take all of it at once (decision 185)."""

LONGEST_SQL = 2000
"""Characters of the statements that an entry keeps."""


CHECKPOINTS = 2000
"""Entries from one that repeats what all before it come to, to the next."""

SUMS = '{"sums":'
"""The beginning of the detail of such an entry, and of an act that recovers an old copy."""

ASKED = ("statements", "sql", "digest")
"""A mark between the statements of one debit and those of another."""


def budget_text(name: str) -> str:
    """Write the name of a budget for people.

    >>> budget_text(WHOLE), budget_text("table:adult")
    ('the total', 'table adult')
    """
    return name.replace(":", " ", 1) or "the total"


class Cause(NamedTuple):
    """The cause of a debit: statements, and the name of the file that they came from, if any."""

    statements: Sequence[str] = ()
    source: str = ""


NO_SQL = Cause()


@dataclass(frozen=True, slots=True)
class Entry:
    """One link: a debit, or a curator's act.

    ``at`` (UTC) and ``state`` are informational; ``within`` names the nested budgets charged;
    ``detail`` is JSON: the policy of a curator's act, or what a debit was asked for, where that is
    known. ``hash`` covers all but ``state``.
    """

    seq: int
    kind: Kind
    id: str
    at: str
    epsilon_units: int | None
    renyi_units: int | None
    noise: str
    epsilon: str
    rho: str
    plan_hash: str
    data_version: str
    within: str
    detail: str
    state: Outcome
    hash: str

    @property
    def statements(self) -> int | None:
        """The number of statements a debit was charged for; None where that is not known."""
        return None if self.kind != "debit" or not self.detail else int(self._asked["statements"])

    @property
    def sql(self) -> str:
        """The beginning of the SQL that a debit was charged for; empty where it is not known."""
        return "" if self.statements is None else str(self._asked["sql"])

    @property
    def source(self) -> str:
        """The name of the file that a debit was asked from; empty where there was none."""
        return "" if self.statements is None else str(self._asked.get("source", ""))

    @property
    def digest_of_sql(self) -> str:
        """A SHA-256 of all of the SQL, its first half, where the entry has only its beginning."""
        return "" if self.statements is None else str(self._asked.get("digest", ""))

    def is_for(self, statements: Sequence[str]) -> bool:
        """True if a debit was charged for these very statements; False where that is not known."""
        if self.statements is None or not statements:
            return False
        asked = json.loads(_asked_for(Cause(statements), Fraction(0)))
        return all(self._asked.get(name) == asked.get(name) for name in ASKED)

    @property
    def note(self) -> str:
        """The curator's note beside an act."""
        return "" if self.kind == "debit" else str(self._asked.get("note", ""))

    @property
    def delta(self) -> Fraction:
        """The chance with which keys that a debit released may break its promise; mostly 0."""
        if self.kind != "debit" or '"delta":' not in self.detail:  # quotes within SQL are escaped
            return Fraction(0)
        return Fraction(self._asked.get("delta", "0"))

    @property
    def is_checkpoint(self) -> bool:
        """True if it changes nothing, and repeats what all entries before it come to."""
        return self.kind == "policy" and self.detail.startswith(SUMS)

    @property
    def is_recovery(self) -> bool:
        """True if it charges an old copy of the ledger up to the sums that its anchor kept."""
        return self.kind == "adopted" and self.detail.startswith(SUMS)

    @property
    def act(self) -> str:
        """The kind of the entry as it is told."""
        return "recovered" if self.is_recovery else self.kind

    @property
    def _asked(self) -> Any:
        return json.loads(self.detail)

    def seal(self, previous: str) -> Entry:
        """Return the entry with the hash that links it to the one before."""
        return replace(self, hash=self.digest(previous))

    def digest(self, previous: str) -> str:
        """Return SHA-256 over the previous hash and every bound field."""
        bound = _ENCODER.encode([previous, *_bound_of(self)])
        return hashlib.sha256(bound.encode()).hexdigest()


COLUMNS = tuple(Entry.__annotations__)
BOUND = COLUMNS[: COLUMNS.index("state")]
_bound_of = attrgetter(*BOUND)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_fraction = lru_cache(maxsize=256)(Fraction)
"""Most debits are of few epsilons, and reading one takes as long as all the rest of it."""


@dataclass(frozen=True, slots=True)
class BudgetTerms:
    """Terms fixed by a curator's entry: the whole budget, those nested in it, and their catalog.

    Every budget keeps the Renyi order it was given first.
    """

    budgets: Mapping[str, Policy]
    policy_hash: str
    parts: Mapping[str, str] = field(default_factory=dict)
    """Short hashes of what the catalog declares, by name; none in older ledgers."""
    policy: Policy = field(init=False, repr=False, compare=False)
    """The budget that every debit is charged to."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", self.budgets[WHOLE])

    def share(self, within: Iterable[str]) -> tuple[Fraction, str, Fraction]:
        """The delta for keys that nobody listed which budgets have, whose it is, and its epsilon.

        Analysts have equal shares of it; charged to none of them, a request has the whole.
        """
        analysts = [name for name in self.budgets if name.startswith(ANALYST)]
        own = next((name for name in within if name in analysts), WHOLE)
        part = self.policy.discovery / (len(analysts) if own else 1)
        return part, own, self.budgets[own].epsilon

    def to_json(self, ledger_id: str, note: str, **more: object) -> str:
        """Write the terms for an entry's detail, with what else it holds.

        Args:
            ledger_id: of the ledger that the terms are for.
            note: reason that a curator gave; empty where there is none.
            **more: further fields of the detail, before those of the terms.
        """
        detail = {
            **more,
            "budgets": _written(self.budgets),
            "ledger_id": ledger_id,
            "note": note,
            "policy_hash": self.policy_hash,
            **({"parts": dict(self.parts)} if self.parts else {}),
        }
        return json.dumps(detail, separators=(",", ":"))


def _written(budgets: Mapping[str, Policy]) -> dict[str, list[str | int | None]]:
    return {
        name: [str(policy.epsilon), str(policy.delta), policy.alpha]
        + ([str(policy.discovery)] if policy.discovery else [])  # none in older ledgers
        for name, policy in budgets.items()
    }


def terms_for(
    policy: Policy,
    policy_hash: str,
    nested: Mapping[str, Fraction],
    known: Mapping[str, Policy] | None = None,
    parts: Mapping[str, str] | None = None,
) -> BudgetTerms:
    """Return terms at the total delta, keeping the orders of budgets that ever existed.

    Args:
        policy: of the whole budget.
        policy_hash: of the catalog's declarations.
        nested: epsilons of budgets inside the whole one, by name.
        known: budgets that existed before, whose Renyi orders stay.
        parts: hashes of what is declared, by which a change is told apart.
    """
    known = known or {}
    totals = {WHOLE: policy.epsilon} | dict(nested)
    budgets = {
        name: Policy(
            epsilon, policy.delta, known[name].alpha if name in known else None, policy.discovery
        )
        for name, epsilon in totals.items()
    }
    return BudgetTerms(budgets, policy_hash, parts or {})


@dataclass(frozen=True, slots=True)
class State:
    """The state of the chain after its last entry.

    ``known`` holds the last policy of every budget there ever was, and ``spent`` its sums: one
    that is dropped and declared again goes on where it stopped. ``discovered`` is the sum of the
    deltas of all debits, ``discovered_in`` that of those charged to each budget within.
    ``adoptions`` are the acts since which there may be another ledger that goes on from the same
    entries: the number of each, None where it took over all sums of the other, and its hash.
    """

    ledger_id: str
    terms: BudgetTerms
    known: Mapping[str, Policy]
    spent: Mapping[str, BudgetSums]
    seq: int
    head: str
    debits: int
    discovered: Fraction = Fraction(0)
    discovered_in: Mapping[str, Fraction] = field(default_factory=dict)
    adoptions: tuple[tuple[int | None, str], ...] = field(default=(), compare=False)
    """Not compared, since the first checkpoints lack it."""

    def after(self, entry: Entry) -> State:
        """Return the state with one more entry.

        Raises: LedgerError E_LEDGER_TAMPERED when it does not link, or could not have been made.
        """
        if entry.seq != self.seq + 1 or entry.hash != entry.digest(self.head):
            raise tampered("an entry does not follow from the one before")
        if entry.is_recovery:
            recovered = read_checkpoint(entry)
            if self.unseen(recovered):
                raise tampered("an entry lowers what was charged before")
            return replace(recovered, adoptions=(*recovered.adoptions, (None, entry.hash)))
        if entry.kind != "debit":
            ledger_id, terms = read_terms(entry)
            if ledger_id != self.ledger_id:
                raise tampered("an entry belongs to another ledger")
            changed = (terms.budgets[n].alpha != self.known[n].alpha for n in self._old(terms))
            if self.debits and any(changed):  # before, there are no sums at any order
                raise tampered("a budget has changed its order")
            known = {**self.known, **terms.budgets}
            spent = {name: self.spent_in(name) for name in known}
            place = (entry.seq, entry.hash, self.debits, self.discovered, self.discovered_in)
            acts = ((entry.seq, entry.hash),) if entry.kind == "adopted" else ()
            found = State(ledger_id, terms, known, spent, *place, (*self.adoptions, *acts))
            if entry.is_checkpoint and found != read_checkpoint(entry):
                raise tampered("a checkpoint does not repeat the entries before it")
            return found
        cost = read_cost(entry)
        within = _read_within(entry)
        charged = self.charge(cost, within)
        if charged is None:
            raise tampered("an entry exceeds the budget")
        discovered = self.discovered + cost.delta if cost.delta else self.discovered
        shares = self.discovered_in
        if cost.delta:
            mine = {name: shares.get(name, Fraction(0)) + cost.delta for name in within}
            shares = {**shares, **mine}
        place = (entry.seq, entry.hash, self.debits + 1, discovered, shares)
        return State(self.ledger_id, self.terms, self.known, charged, *place, self.adoptions)

    def unseen(self, later: State) -> str:
        """The reason why another state may not have all that this one has; empty where it has.

        Guarantee: where it is empty, no sum of the other is smaller, and each at its order; and of
        two ledgers that went on from the same entries, one by an adoption, it has been either.
        """
        if later.ledger_id != self.ledger_id or not later.known.keys() >= self.known.keys():
            return "it has budgets that its anchor does not know"
        known = later.adoptions[: len(self.adoptions)] == self.adoptions
        rest = later.adoptions[len(self.adoptions) :]
        if not known or any(seq is not None and seq <= self.seq for seq, _ in rest):
            return "it is no copy of the ledger that its anchor is of: another went on from it"
        for name, mine in self.spent.items():
            its = later.spent_in(name)
            same = later.known[name].alpha == self.known[name].alpha or not self.debits
            if not (same and its.has(mine)):
                return "it has charges that its anchor has not seen"
        own, other = {**self.discovered_in, WHOLE: self.discovered}, later.discovered_in
        other = {**other, WHOLE: later.discovered}
        if later.debits < self.debits or any(other.get(n, 0) < each for n, each in own.items()):
            return "it has charges that its anchor has not seen"
        return ""

    def recovery(self, last: State, note: str) -> Entry:
        """An act that charges this state up to a later one, not yet linked.

        Raises: LedgerError E_LEDGER_ROLLBACK where it may not have all that was charged here.
        """
        why = self.unseen(last)
        if why:
            raise unrecoverable(why)
        is_same = last.terms.policy_hash == self.terms.policy_hash
        terms = replace(last.terms, parts=self.terms.parts) if is_same else last.terms
        return curator_entry(self.seq + 1, "adopted", replace(last, terms=terms).to_json(note))

    def checkpoint(self) -> Entry:
        """An entry that repeats this state, not yet linked; versions without them see an act."""
        note = "what all entries so far come to"
        return curator_entry(self.seq + 1, "policy", self.to_json(note))

    def to_json(self, note: str) -> str:
        """Write the terms and all sums, for an entry's detail or for the anchor."""
        sums = {
            "known": _written({n: p for n, p in self.known.items() if n not in self.terms.budgets}),
            "spent": {
                name: [each.epsilon_units, each.renyi_units, each.gaussian, each.releases]
                for name, each in self.spent.items()
                if each.releases
            },
            "debits": self.debits,
            "discovered": str(self.discovered),
            "discovered_in": {name: str(each) for name, each in self.discovered_in.items()},
            **({"adoptions": self.adoptions} if self.adoptions else {}),
        }
        return self.terms.to_json(self.ledger_id, note, sums=sums)

    def _old(self, terms: BudgetTerms) -> set[str]:
        return self.known.keys() & terms.budgets.keys()

    def charge(self, cost: Cost, within: tuple[str, ...]) -> dict[str, BudgetSums] | None:
        """Return every budget's sums after a debit, or None when one of them refuses."""
        if cost.delta and cost.delta > self.undiscovered:
            return None
        spent = dict(self.spent)
        for name in (WHOLE, *within):
            if name not in self.terms.budgets:
                raise tampered("an entry is charged to a budget that does not exist")
            policy = self.terms.budgets[name]
            spent[name] = spent[name].add(cost.under(policy) if name else cost)
            if not spent[name].within(policy):
                return None
        return spent

    @property
    def undiscovered(self) -> Fraction:
        """The delta that is left for keys which nobody listed."""
        return max(Fraction(0), self.terms.policy.discovery - self.discovered)

    def undiscovered_in(self, within: Iterable[str]) -> Fraction:
        """The delta that is left for such keys where budgets are charged too.

        Analysts have equal shares of it, whatever they have of epsilon.
        """
        share, name, _ = self.terms.share(within)
        spent = self.discovered_in.get(name, Fraction(0)) if name else self.discovered
        return min(self.undiscovered, max(Fraction(0), share - spent))

    def discoverable(self, epsilon: Fraction, within: Iterable[str]) -> Fraction:
        """The most delta that one request of an epsilon may take for such keys.

        Of an analyst's share, or of the whole where no analyst is charged, it is as large a part
        as that of epsilon, or a tenth.
        """
        within = tuple(within)
        share, _, total = self.terms.share(within)
        part = max(LEAST_PART, min(Fraction(1), epsilon / total))
        return min(share * part, self.undiscovered_in(within))

    def refusing(self, cost: Cost, within: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the budgets that do not admit a debit: the whole, else others."""
        found = []
        for name in (WHOLE, *within):
            policy = self.terms.budgets[name]
            charged = cost.under(policy) if name else cost
            if not self.spent[name].add(charged).within(policy):
                found.append(name)
        return (WHOLE,) if WHOLE in found else tuple(found)

    def spent_in(self, name: str) -> BudgetSums:
        """Return the sums of one budget, zero for one that does not exist."""
        return self.spent.get(name, BudgetSums())

    def remaining(self, cost: Cost, within: tuple[str, ...]) -> Fraction:
        """Return the largest epsilon of the same noise law that all budgets still admit."""
        pairs = [(self.spent[name], self.terms.budgets[name]) for name in (WHOLE, *within)]
        if cost.is_pure:
            return min(spent.largest_pure(policy) for spent, policy in pairs)
        return min(spent.largest_gaussian(policy) for spent, policy in pairs)


def terms_after_change(
    state: State,
    policy: Policy,
    policy_hash: str,
    nested: Mapping[str, Fraction],
    parts: Mapping[str, str] | None,
) -> BudgetTerms:
    """The terms of another catalog for what was charged so far.

    Args:
        state: sums of the ledger, verified up to its last entry.
        policy: of the whole budget, as the changed catalog has it.
        policy_hash: of the changed catalog's declarations.
        nested: epsilons of budgets inside the whole one, by name.
        parts: hashes of what is declared; None where the catalog gives none.

    Raises: LedgerError (E_POLICY_CHANGED) when the past does not fit them; its hint is the line of
    the catalog that would.
    """
    before = state.terms.policy
    if not state.debits:
        return terms_for(policy, policy_hash, nested, None, parts)
    delta = f"delta = {float(before.delta):g} in [budget]"
    if (before.delta == 0) != (policy.delta == 0):
        what = "what was charged cannot be held against delta = 0 and delta > 0 in turn"
        raise unchangeable(what, f"write {delta}")
    terms = terms_for(policy, policy_hash, nested, state.known, parts)
    for name, each in terms.budgets.items():
        if not state.spent_in(name).within(each):
            what = f"more than the new epsilon of {budget_text(name)} has been spent already"
            lines = [_line(name, state.known[name].epsilon)]
            lines += [delta] if policy.delta < before.delta else []
            raise unchangeable(what, f"write {' and '.join(lines)}")
    if state.discovered > policy.discovery:
        line = f"discovery_delta = {float(before.discovery):g} in [budget]"
        raise unchangeable("more of discovery_delta has been used already", f"write {line}")
    return terms


def _line(name: str, epsilon: Fraction) -> str:
    """The line of a catalog that gives a budget an epsilon, and its section.

    >>> _line("table:adult", Fraction(2))
    'budget = { epsilon = 2 } in [table.adult]'
    """
    kind, _, owner = name.partition(":")
    amount = f"epsilon = {decimal_text(epsilon)}"
    if kind == "table":
        return f"budget = {{ {amount} }} in [table.{owner}]"
    section = {"": "budget", "scratch": "scratch"}.get(kind, f"{kind}.{owner}")
    return f"{amount} in [{section}]"


def debit_entry(
    seq: int,
    cost: Cost,
    plan_hash: str,
    data_version: str,
    within: tuple[str, ...],
    asked: Cause = NO_SQL,
) -> Entry:
    """Return a debit that is not yet linked to the entry before.

    Args:
        seq: number of the entry, one above the last.
        cost: at the Renyi order of the whole budget.
        plan_hash: fingerprint of the plan that may be measured for it.
        data_version: of the sources that may be measured.
        within: nested budgets that are charged too.
        asked: statements that it is charged for, of which the beginning is kept.
    """
    return Entry(
        seq=seq,
        kind="debit",
        id=_new_id(),
        at=_now(),
        epsilon_units=cost.epsilon_units,
        renyi_units=cost.renyi_units,
        noise=cost.noise,
        epsilon=str(cost.epsilon),
        rho="" if cost.rho is None else str(cost.rho),
        plan_hash=plan_hash,
        data_version=data_version,
        within="\n".join(within),
        detail=_asked_for(asked, cost.delta),
        state="reserved",
        hash="",
    )


def _asked_for(asked: Cause, delta: Fraction) -> str:
    """Return a debit's record of the statements that it is charged for, and its delta above 0."""
    if not asked.statements and not delta:
        return ""
    text = ";\n".join(asked.statements)
    shown = (
        text if len(text) <= LONGEST_SQL else text[: LONGEST_SQL - 1] + "\N{HORIZONTAL ELLIPSIS}"
    )
    kept: dict[str, object] = {"statements": len(asked.statements), "sql": shown}
    kept |= {"source": asked.source} if asked.source else {}
    if shown != text:
        kept["digest"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    kept |= {"delta": str(delta)} if delta else {}
    return json.dumps(kept, separators=(",", ":"))


def curator_entry(seq: int, kind: Kind, detail: str) -> Entry:
    """Return a curator's act that is not yet linked to the entry before.

    Args:
        seq: number of the entry, one above the last.
        kind: act, such as "policy" or "adopted".
        detail: JSON with the terms in force after it.
    """
    return Entry(
        seq=seq,
        kind=kind,
        id=_new_id(),
        at=_now(),
        epsilon_units=None,
        renyi_units=None,
        noise="",
        epsilon="",
        rho="",
        plan_hash="",
        data_version="",
        within="",
        detail=detail,
        state="released",
        hash="",
    )


def first_state(entry: Entry) -> State:
    """Return the state after the entry that created a ledger. Raises: LedgerError."""
    if entry.seq != 0 or entry.kind != "created" or entry.hash != entry.digest(""):
        raise tampered("the first entry is not a creation")
    ledger_id, terms = read_terms(entry)
    spent = {name: BudgetSums() for name in terms.budgets}
    return State(ledger_id, terms, terms.budgets, spent, 0, entry.hash, 0)


def id_of(salt: bytes) -> str:
    """Return the public name that follows from a ledger's secret salt."""
    # 128 bits: no two ledgers have one name by chance, and the salt cannot be found from it.
    return hashlib.sha256(salt).hexdigest()[:32]


def subkey(salt: bytes, use: str) -> bytes:
    """Derive the key of one use from a ledger's secret salt, 32 bytes; nothing else is keyed by it.

    Source: Krawczyk and Eronen, RFC 5869 (HKDF with SHA-256, of one block).
    Guarantee: who learns the key of a use learns neither the salt nor the key of another use.
    """
    # Extract, then expand by the use and a counter of one byte: one block is all that is needed.
    extracted = hmac.digest(b"dpsql", salt, "sha256")
    return hmac.digest(extracted, use.encode() + b"\1", "sha256")


def _new_id() -> str:
    # 128 bits: identities of entries never meet by chance, whoever wrote them.
    return os.urandom(16).hex()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_cost(entry: Entry) -> Cost:
    """Return the cost that a debit charged. Raises: LedgerError E_LEDGER_TAMPERED."""
    try:
        rho = _fraction(entry.rho) if entry.rho else None
        units = entry.epsilon_units, entry.renyi_units or 0
        return Cost(*units, entry.noise, _fraction(entry.epsilon), rho, entry.delta)
    except (ValueError, ArithmeticError, DataError, TypeError, AttributeError):
        raise tampered("the cost of an entry cannot be read") from None


def read_terms(entry: Entry) -> tuple[str, BudgetTerms]:
    """The ledger and the terms that a curator's entry names. Raises: LedgerError."""
    try:
        detail = json.loads(entry.detail)
        budgets = {str(name): _read_policy(*found) for name, found in detail["budgets"].items()}
        parts = {str(name): str(part) for name, part in detail.get("parts", {}).items()}
        return str(detail["ledger_id"]), BudgetTerms(budgets, str(detail["policy_hash"]), parts)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, DataError):
        raise tampered("the terms of an entry cannot be read") from None


def read_checkpoint(entry: Entry) -> State:
    """The state that a checkpoint repeats. Raises: LedgerError E_LEDGER_TAMPERED."""
    ledger_id, terms = read_terms(entry)
    try:
        sums = json.loads(entry.detail)["sums"]
        known = {str(name): _read_policy(*found) for name, found in sums["known"].items()}
        known = {**known, **terms.budgets}
        spent = dict.fromkeys(known, BudgetSums()) | {
            str(name): BudgetSums(int(pure), int(renyi), bool(gaussian), int(releases))
            for name, (pure, renyi, gaussian, releases) in sums["spent"].items()
        }
        shares = {str(name): Fraction(each) for name, each in sums["discovered_in"].items()}
        place = (entry.seq, entry.hash, int(sums["debits"]), Fraction(sums["discovered"]), shares)
        acts = tuple((n if n is None else int(n), str(h)) for n, h in sums.get("adoptions", ()))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, DataError):
        raise tampered("the sums of a checkpoint cannot be read") from None
    return State(ledger_id, terms, known, spent, *place, acts)


def _read_policy(epsilon: str, delta: str, alpha: int | None, discovery: str = "0") -> Policy:
    return Policy(Fraction(epsilon), Fraction(delta), alpha, Fraction(discovery))


def _read_within(entry: Entry) -> tuple[str, ...]:
    return tuple(entry.within.split("\n")) if entry.within else ()
