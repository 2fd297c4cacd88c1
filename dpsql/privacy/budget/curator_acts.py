"""The catalog's presets in the ledger, and the acts of a curator: verify, raise, migrate, adopt.

Every act is an entry of the ledger's hash chain. None of them reads a row of private data.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from dpsql.catalog import Catalog
from dpsql.catalog.read import read_catalog
from dpsql.errors import CatalogError, DataError, LedgerError, decimal_text, printable
from dpsql.privacy.budget.accounting import Policy
from dpsql.privacy.budget.anchor import anchor_path
from dpsql.privacy.budget.hash_chain import ANALYST, BudgetTerms, terms_for
from dpsql.privacy.budget.ledger import Entry, Ledger, Status
from dpsql.privacy.budget.refusals import policy_changed
from dpsql.records import dataclass, replace
from dpsql.relation.derive import bases_of

LONGEST_NOTE = 500
"""Characters of the curator's reason for an act; it is kept for ever."""

_HEADER = re.compile(r"^\s*\[\[?\s*([^\[\]]*?)\s*\]\]?\s*(?:#.*)?\s*$")
_EPSILON = re.compile(r"^(\s*epsilon\s*=\s*)([^#\s]+)(\s*(?:#.*)?\s*)$")


@dataclass(frozen=True, slots=True)
class Preset:
    """The preset that a ledger is created for: the whole budget, those inside it, their catalog.

    ``parts`` are short hashes of what the catalog declares, by name.
    """

    policy: Policy
    policy_hash: str
    nested: dict[str, Fraction]
    parts: dict[str, str]

    @classmethod
    def of(cls, catalog: Catalog) -> Preset:
        """The preset of a catalog. Raises: DataError."""
        whole = catalog.budget
        policy = Policy(whole.epsilon, whole.delta, discovery=whole.discovery_delta)
        nested = {
            nested_name(key): table.budget
            for key, table in catalog.tables.items()
            if table.budget is not None
        }
        nested |= {analyst_name(key): epsilon for key, epsilon in catalog.analysts.items()}
        nested |= {} if catalog.scratch is None else {SCRATCH: catalog.scratch}
        return cls(policy, catalog.policy_hash(), nested, catalog.parts())

    @property
    def terms(self) -> BudgetTerms:
        """The terms of a ledger that was created now."""
        return terms_for(self.policy, self.policy_hash, self.nested, parts=self.parts)


SCRATCH = "scratch:drafts"
"""The name in the ledger of the part of the budget that drafts may spend."""


def nested_name(table: str) -> str:
    """The name in the ledger of a table's own budget; ``table`` is its case-folded name."""
    return f"table:{table}"


def analyst_name(analyst: str) -> str:
    """The name in the ledger of an analyst's budget; ``analyst`` is a case-folded name."""
    return f"{ANALYST}{analyst}"


def find_analyst(catalog: Catalog, analyst: object) -> str | None:
    """The analyst that a connection is for, case-folded; None where none is declared.

    Raises: DataError (E_ANALYST) for an unknown one, and for none where some are declared.
    """
    if analyst is None and not catalog.analysts:
        return None
    key = analyst.casefold() if isinstance(analyst, str) else None
    if key is not None and key in catalog.analysts:
        return key
    if not catalog.analysts:
        raise DataError(
            "E_ANALYST",
            "the catalog declares no analysts",
            hint="leave the analyst out, or declare [analyst.NAME] with epsilon = 1.0",
        )
    what = "no analyst is named" if analyst is None else "the catalog declares no such analyst"
    raise DataError("E_ANALYST", what, hint=f"analysts: {', '.join(catalog.analysts)}")


def nested_budgets(catalog: Catalog, tables: Iterable[str], analyst: str | None) -> tuple[str, ...]:
    """The budgets, by their names in the ledger, that a request is charged to beside the whole.

    Each is charged in full.

    Args:
        catalog: declares budgets of tables and of analysts.
        tables: names of those that are read, stored or derived.
        analyst: who asks, None where nobody is named.

    Raises: DataError (E_ANALYST) when an analyst has to be named.
    """
    bases = bases_of(catalog, tables)
    names = [nested_name(base.name.casefold()) for base in bases if base.budget is not None]
    found = find_analyst(catalog, analyst)
    return (*names, *(() if found is None else (analyst_name(found),)))


def largest_request(
    catalog: Catalog, status: Status, analyst: str | None, scratch: bool = False
) -> tuple[Fraction, Fraction]:
    """The largest epsilon of one more request of an analyst on any private table, and its total.

    Args:
        catalog: declares budgets of tables and of drafts.
        status: sums of the ledger as they are now.
        analyst: whose budget counts, None to leave budgets of analysts out.
        scratch: True for a request of a draft, which is charged to the budget of drafts too.
    """
    own = [] if analyst is None else [analyst_name(analyst)]
    own += [SCRATCH] if scratch and catalog.scratch is not None else []
    found = []
    for key, table in catalog.tables.items():
        if not table.public:
            names = own if table.budget is None else [*own, nested_name(key)]
            totals = [status.total_epsilon, *(status.nested[n].total_epsilon for n in names)]
            found.append((status.remaining_within(names), min(totals)))
    return max(found, default=(status.remaining_epsilon, status.total_epsilon))


def ledger_file(catalog: Catalog) -> Path:
    """Return the path of the ledger of a catalog."""
    return catalog.path.with_suffix(".ledger")


def ledger_files(catalog: Catalog) -> tuple[Path, Path]:
    """The ledger of a catalog, and its anchor."""
    real = Path(os.path.realpath(ledger_file(catalog)))
    return real, anchor_path(Path(os.path.realpath(anchor_folder(catalog))), real)


def anchor_folder(catalog: Catalog) -> Path:
    """Return the folder of a ledger's anchor: by default, away from the ledger it guards."""
    return user_folder() if catalog.anchors is None else catalog.anchors


def user_folder() -> Path:
    """Return the folder of a user's anchors, and of what all catalogs note of their sources."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(Path.home(), ".local", "state")
    return Path(home) / "dpsql" / "anchors"


def verify_ledger(path: str | os.PathLike[str]) -> Status:
    """Check the ledger of a catalog from its first entry, its anchor and its catalog.

    Raises: CatalogError; LedgerError.
    """
    return _open(read_catalog(path)).verify()


def find_entry(path: str | os.PathLike[str], head: str) -> Entry:
    """Verify a ledger and return the entry that a receipt names by its ``head``.

    Raises: CatalogError; LedgerError, with E_RECEIPT when there is no such entry.
    """
    ledger = _open(read_catalog(path))
    ledger.verify()
    for entry in ledger.entries():
        if entry.hash == head:
            return entry
    raise LedgerError(
        "E_RECEIPT",
        "the ledger has no entry with this head",
        hint="a receipt that was issued and is not here proves that the ledger was replaced",
    )


def migrate_ledger(path: str | os.PathLike[str], note: str = "") -> Status | None:
    """Log that the catalog was changed on purpose; None when it is the one in force.

    What was spent stays spent. Raises: CatalogError; LedgerError, with E_POLICY_CHANGED when the
    past does not fit the new budget.
    """
    catalog = read_catalog(path)
    terms = Ledger.terms_in_force(ledger_file(catalog), anchor_folder(catalog))
    preset = Preset.of(catalog)
    lifted = _lifted(catalog, terms)
    if lifted is not None:
        raise lifted
    in_force = (terms.policy_hash, terms.policy.epsilon, terms.policy.delta)
    if in_force == (preset.policy_hash, preset.policy.epsilon, preset.policy.delta):
        return None
    return _migrate(catalog, note)


def _lifted(catalog: Catalog, terms: BudgetTerms) -> LedgerError | None:
    """The refusal to forget the budget of a table that stays: its sum would miss what follows."""
    for key, table in catalog.tables.items():
        if table.budget is None and nested_name(key) in terms.budgets:
            name, total = printable(table.name), decimal_text(catalog.budget.epsilon)
            what = f"the table {name!r} had a budget of its own, and has none now"
            hint = f"write budget = {{ epsilon = {total} }} in [table.{name}], which lifts it"
            return LedgerError("E_POLICY_CHANGED", what, hint=hint)
    return None


def raise_budget(path: str | os.PathLike[str], epsilon: Fraction, note: str = "") -> Status:
    """Raise the total epsilon: first in the catalog's file, then as an entry of the ledger.

    Whatever happens in between, the ledger then refuses to open until this is run again.

    Args:
        path: catalog, whose line of epsilon is rewritten.
        epsilon: new total, above the one in force.
        note: reason, kept in the ledger.

    Raises: DataError (E_EPSILON) unless it is more than the total in force; CatalogError when the
    file cannot be edited; LedgerError, with E_POLICY_CHANGED when more than the total has changed.
    """
    catalog = read_catalog(path)
    terms = Ledger.terms_in_force(ledger_file(catalog), anchor_folder(catalog))
    total = terms.policy.epsilon
    if with_epsilon(catalog, total).policy_hash() != terms.policy_hash:
        raise LedgerError(
            "E_POLICY_CHANGED",
            "more than the total epsilon of the catalog has changed",
            hint="undo the change, or accept all of it with: dpsql ledger migrate",
        )
    if epsilon <= total:
        raise DataError(
            "E_EPSILON",
            f"the total epsilon is {decimal_text(total)} already",
            hint="to lower it, edit the catalog and run: dpsql ledger migrate",
        )
    wanted = with_epsilon(catalog, epsilon)
    Preset.of(wanted)
    if catalog != wanted:
        rewrite_epsilon(catalog, wanted)
    return _migrate(wanted, note)


def adopt_ledger(path: str | os.PathLike[str], note: str = "") -> Status:
    """Log that a ledger which was moved, or whose anchor was lost, is the newest copy.

    Raises: CatalogError; LedgerError.
    """
    catalog = read_catalog(path)
    return Ledger.adopt(ledger_file(catalog), anchor_folder(catalog), _plain(note)).status()


def recover_ledger(path: str | os.PathLike[str], note: str = "") -> Status | None:
    """Charge an old copy of a ledger up to what its anchor has seen; None where it is none.

    Raises: CatalogError; LedgerError, with E_LEDGER_ROLLBACK where there is any doubt.
    """
    catalog = read_catalog(path)
    ledger = Ledger.recover(ledger_file(catalog), anchor_folder(catalog), _plain(note))
    return None if ledger is None else ledger.status()


def backup_ledger(catalog: Catalog, folder: Path) -> Status:
    """Copy the ledger of a catalog with its anchor into a folder. Raises: LedgerError."""
    return Ledger.backup(ledger_file(catalog), anchor_folder(catalog), folder)


def with_epsilon(catalog: Catalog, epsilon: Fraction) -> Catalog:
    """The same catalog with another total."""
    return replace(catalog, budget=replace(catalog.budget, epsilon=epsilon))


def rewrite_epsilon(catalog: Catalog, wanted: Catalog) -> None:
    """Change the line ``epsilon = ...`` of [budget] and nothing else, atomically.

    Raises: CatalogError when the file would not then say exactly what is wanted.
    """
    lines = catalog.path.read_bytes().decode().splitlines(keepends=True)
    text = decimal_text(wanted.budget.epsilon)
    section = None
    for i, line in enumerate(lines):
        header, setting = _HEADER.match(line.removeprefix("\ufeff")), _EPSILON.match(line)
        if header:
            section = header[1]
        elif setting and section == "budget":
            lines[i] = f"{setting[1]}{text}{setting[3]}"
            break
    fresh = catalog.path.with_name(f"{catalog.path.name}.new")
    try:
        with open(fresh, "xb") as file:
            file.write("".join(lines).encode())
        if replace(read_catalog(fresh), path=catalog.path) != wanted:
            raise _uneditable(catalog)
        shutil.copymode(catalog.path, fresh)
        os.replace(fresh, catalog.path)
    except OSError:
        raise _uneditable(catalog) from None
    finally:
        fresh.unlink(missing_ok=True)


def _uneditable(catalog: Catalog) -> CatalogError:
    return CatalogError(
        "E_POLICY",
        f"{printable(catalog.path.name)}: the total epsilon could not be changed here",
        hint="set epsilon in its [budget] by hand, then run the same command again",
    )


def open_ledger(
    catalog: Catalog,
    anchors: Path,
    create: bool = True,
    held: Ledger | None = None,
    verified: Ledger | None = None,
) -> Ledger:
    """Open the ledger of a catalog; create it where none is or was, unless it must be there.

    Args:
        catalog: its file names the ledger, its declarations are the terms.
        anchors: folder of the anchors.
        create: False where the ledger has to be there.
        held: handle that is open already for this very catalog, and is returned if it still goes by
            it.
        verified: handle whose verified entries are not read again.

    Raises: DataError; LedgerError, with E_POLICY_CHANGED and what has changed.
    """
    preset, file = Preset.of(catalog), ledger_file(catalog)
    facts, terms = (file, anchors, preset.policy, preset.policy_hash), preset.terms
    try:
        if held is not None:
            held.go_by(preset.policy, preset.policy_hash)
            return held
        if not create:
            return Ledger.open(*facts)
        return Ledger.open_or_create(*facts, preset.nested, preset.parts, verified)
    except LedgerError as error:
        if error.code != "E_POLICY_CHANGED":
            raise
        known = held or verified
        if create and _is_on_disk(catalog, preset) and Ledger.follow(*facts[:2], terms, known):
            return open_ledger(catalog, anchors, create, held, verified)
        from dpsql.privacy.budget.history import changed_between  # most catalogs stay as they are

        in_force = Ledger.terms_in_force(file, anchors, known)
        hindrance = _lifted(catalog, in_force) or Ledger.hindrance(file, anchors, terms, known)
        raise policy_changed(changed_between(in_force, terms), hindrance) from None


def _is_on_disk(catalog: Catalog, preset: Preset) -> bool:
    """True if a catalog is what its file says by now: who has an older one follows nothing."""
    return read_catalog(catalog.path).policy_hash() == preset.policy_hash


def _open(catalog: Catalog) -> Ledger:
    return open_ledger(catalog, anchor_folder(catalog), create=False)


def follow_draft(catalog: Catalog) -> str:
    """Log that a draft of the catalog is in force now; say what changed, nothing if nothing did.

    A draft may change columns and views, and add tables; before anything was charged, all of it.
    Else budgets, units, sources and what is public stay: opening the ledger then refuses them.
    Raises: LedgerError.
    Guarantee: no budget changes that was charged, and what was spent stays spent.
    """
    if not ledger_file(catalog).exists():
        return ""
    in_force = Ledger.terms_in_force(ledger_file(catalog), anchor_folder(catalog))
    wanted = Preset.of(catalog).terms
    if in_force.policy_hash == wanted.policy_hash or not _is_draft(in_force, wanted):
        return ""
    from dpsql.privacy.budget.history import changed_between  # most catalogs stay as they are

    change = changed_between(in_force, wanted)
    _migrate(catalog, f"draft: {change}"[:LONGEST_NOTE])
    return change


def _is_draft(before: BudgetTerms, after: BudgetTerms) -> bool:
    """True if a catalog differs in columns, views and new tables alone."""
    totals = [
        {name: (p.epsilon, p.delta, p.discovery) for name, p in terms.budgets.items()}
        for terms in (before, after)
    ]
    if totals[0] != totals[1] or not before.parts:
        return False
    tables = [name for name in before.parts if name.startswith("table ")]
    return all(after.parts.get(name) == before.parts[name] for name in tables)


def _migrate(catalog: Catalog, note: str) -> Status:
    preset = Preset.of(catalog)
    ledger = Ledger.migrate(
        ledger_file(catalog),
        anchor_folder(catalog),
        preset.policy,
        preset.policy_hash,
        preset.nested,
        _plain(note),
        preset.parts,
    )
    return ledger.status()


def _plain(note: str) -> str:
    if len(note) > LONGEST_NOTE or not note.isprintable():
        raise DataError("E_SETTING", f"a note is printable and at most {LONGEST_NOTE} characters")
    return note
