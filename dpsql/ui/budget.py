"""The budget and the ledger: as lines, as a grid, and ``dpsql ledger`` with the curator's acts.

The ledger is imported by what reads it, so that ``dpsql --help`` does not wait for the engine.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.errors import UsageError, decimal_text, printable
from dpsql.ui.connect import LARGEST_EPSILON, WIDE, blaming_options
from dpsql.ui.grid import floor_text
from dpsql.ui.narration import tell, tell_error

if TYPE_CHECKING:
    from dpsql.dbapi.connection import BudgetStatus

EPILOG = """\b
Acts of the curator (dpsql ledger ACT --help):
  verify CATALOG [--receipt HEAD]   check the whole ledger, or find a result's receipt in it
  raise CATALOG --epsilon E         raise the total epsilon
  migrate CATALOG                   accept a changed catalog
  adopt CATALOG                     accept a ledger that was moved, or whose anchor was lost
  backup CATALOG FOLDER             copy it with its anchor, while a server writes to it
  recover CATALOG                   charge a restored copy up to what its anchor has seen
  show CATALOG                      the same as without an act
  export CATALOG --jsonl            every entry as JSON, for programs that collect logs
\b
Each that changes something is logged in the ledger for good; what was spent stays spent.
"""


def status_lines(budget: BudgetStatus, unicode: bool = True) -> list[str]:
    """Describe the budget: total, remaining, what a Gaussian request may still ask, requests."""
    total = f"total      ε {floor_text(budget.total_epsilon)}"
    if budget.total_delta:
        total += f", δ {floor_text(budget.total_delta)}"
    bar = gauge(budget.remaining_epsilon, budget.total_epsilon, unicode=unicode)
    lines = [total, f"remaining  ε {floor_text(budget.remaining_epsilon)}  {bar}"]
    if budget.total_delta:
        gaussian = floor_text(budget.remaining_gaussian_epsilon)
        lines.append(f"           ε {gaussian} for one request with Gaussian noise")
    for name, inner in budget.nested.items():
        left, whole = floor_text(inner.remaining_epsilon), floor_text(inner.total_epsilon)
        lines.append(f"           ε {left} of {whole} for {printable(name.replace(':', ' ', 1))}")
    lines.append(f"requests   {budget.entries}")
    lines.append(f"ledger     {budget.ledger_id}, entry {budget.seq}")
    return lines


def gauge(remaining: Fraction, total: Fraction, width: int = 20, unicode: bool = True) -> str:
    """Draw how much of a budget is left.

    Args:
        remaining, total: epsilons of one budget; a total of 0 is drawn as spent.
        width: characters of the bar.
        unicode: False for a terminal or locale that has ASCII alone.

    >>> gauge(Fraction(3, 4), Fraction(1), 8)
    '██████░░'
    """
    full = int(width * min(Fraction(1), remaining / total)) if total > 0 else 0
    left, spent = "█░" if unicode else "#."
    return left * full + spent * (width - full)


@click.command(context_settings=WIDE, epilog=EPILOG)
@click.argument("catalog")
@click.option("--analyst", metavar="NAME", help="Only what was charged to an analyst.")
@click.option(
    "--by", "period", type=click.Choice(["day", "month"]), help="Sums instead of entries."
)
@click.option("--format", "--mode", "format_", metavar="FORMAT", help="How entries are written.")
@click.option("--html", "page", metavar="FILE", help="Write a page with a burn-down instead.")
@click.option("--force", is_flag=True, help="Replace an existing page.")
def show(
    catalog: str,
    analyst: str | None,
    period: str | None,
    format_: str | None,
    page: str | None,
    force: bool,
) -> int:
    """Show the budget of CATALOG (stderr) and every charge (stdout).

    The ledger can be read whatever has become of its catalog; what is wrong is told, and is the
    exit status.
    """
    from dpsql.dbapi.history import read_past
    from dpsql.ui.entries import brief_grid, full_grid, of_analyst, summed_grid
    from dpsql.ui.session import choose_format, write_grid
    from dpsql.ui.streams import OutputFile

    chosen = choose_format(format_)
    past = read_past(catalog)
    found = past.moments if analyst is None else of_analyst(past.moments, analyst)
    budget = "" if analyst is None else f"analyst:{analyst.casefold()}"
    if past.status is not None:
        for line in status_lines(past.status):
            tell(line)
    if page is not None:
        from dpsql.ui.burn_down import burn_down_page

        with OutputFile(Path(page), force) as target:
            target.commit(burn_down_page(f"Ledger of {Path(catalog).name}", found, budget))
        tell(f"page in {printable(page)}")
    elif period is not None:
        write_grid(summed_grid(found, period, budget), chosen)
    else:
        write_grid(brief_grid(found) if chosen == "box" else full_grid(found), chosen)
    if past.problem is not None:
        tell_error(past.problem)
        return past.problem.exit_code
    return 0


@click.command(context_settings=WIDE)
@click.argument("catalog")
@click.option("--receipt", metavar="HEAD", help="Find the entry that a result's receipt names.")
def verify(catalog: str, receipt: str | None) -> int:
    """Check the ledger of CATALOG: every link, every total, its anchor, and its catalog."""
    from dpsql.dbapi import connection

    status = connection.verify_ledger(catalog)
    tell_status("verified", status)
    if receipt is not None:
        entry = connection.find_entry(catalog, receipt.strip().lower())
        paid = (
            f"ε {floor_text(Fraction(entry.epsilon), 12)}, {entry.noise} noise, "
            if entry.noise
            else ""
        )
        tell(f"receipt: entry {entry.seq}, {entry.kind}, {paid}{entry.at}")
    return 0


@click.command("raise", context_settings=WIDE)
@click.argument("catalog")
@click.option("-e", "--epsilon", metavar="E", required=True, help="The new total epsilon.")
@click.option("--note", metavar="TEXT", default="", help="Why; kept in the ledger.")
def raise_total(catalog: str, epsilon: str, note: str) -> int:
    """Raise the total epsilon of CATALOG, in its file and in its ledger."""
    from dpsql.dbapi import connection

    with blaming_options():
        total = connection.parse_epsilon_text(epsilon, LARGEST_EPSILON)
        status = connection.raise_budget(catalog, total, note)
    tell_status("raised", status)
    return 0


@click.command(context_settings=WIDE)
@click.argument("catalog")
@click.option("--note", metavar="TEXT", default="", help="Why; kept in the ledger.")
def migrate(catalog: str, note: str) -> int:
    """Accept CATALOG as it is now. Earlier charges stay; earlier releases are not reused."""
    from dpsql.dbapi import connection

    with blaming_options():
        status = connection.migrate_ledger(catalog, note)
    if status is None:
        tell("the ledger goes by this catalog already; nothing was logged")
    else:
        tell_status("migrated", status)
    return 0


@click.command(context_settings=WIDE)
@click.argument("catalog")
@click.option("--note", metavar="TEXT", default="", help="Why; kept in the ledger.")
def adopt(catalog: str, note: str) -> int:
    """Accept the ledger of CATALOG at its present place as the newest copy."""
    from dpsql.dbapi import connection

    with blaming_options():
        status = connection.adopt_ledger(catalog, note)
    tell_status("adopted", status)
    return 0


@click.command(context_settings=WIDE)
@click.argument("catalog")
@click.argument("folder")
def backup(catalog: str, folder: str) -> int:
    """Copy the ledger of CATALOG, its anchor, the catalog and what was released to a new FOLDER.

    The copy is of one moment, whoever writes meanwhile, and is verified from its first entry.
    """
    from dpsql.dbapi.backup import backup as copied

    tell_status("backed up", copied(catalog, folder))
    return 0


@click.command(context_settings=WIDE)
@click.argument("catalog")
@click.option("--note", metavar="TEXT", default="", help="Why; kept in the ledger.")
def recover(catalog: str, note: str) -> int:
    """Charge a restored ledger of CATALOG up to the sums that its anchor keeps.

    An entry says so. Where it is in doubt what was spent since, it is refused.
    """
    from dpsql.dbapi import connection

    with blaming_options():
        status = connection.recover_ledger(catalog, note)
    if status is None:
        tell("the ledger has all that its anchor has seen; nothing was logged")
    else:
        tell_status("recovered", status)
    return 0


@click.command(context_settings=WIDE)
@click.argument("catalog")
@click.option("--jsonl", is_flag=True, help="One JSON object a line, the only form so far.")
@click.option("--after", metavar="ENTRY", type=click.IntRange(-1), default=-1, help="Later ones.")
def export(catalog: str, jsonl: bool, after: int) -> int:
    """Write every entry of the ledger of CATALOG to stdout, for programs that collect logs.

    What is wrong with the ledger or its catalog is told, and is the exit status.
    """
    from dpsql.dbapi.history import read_past
    from dpsql.ui.entries import json_line

    if not jsonl:
        hint = f"dpsql ledger export {printable(catalog)} --jsonl"
        raise UsageError("E_USAGE", "name the form of what is written", hint=hint)
    past = read_past(catalog)
    for moment in past.moments:
        if moment.entry.seq > after:
            print(json_line(moment))
    if past.problem is not None:
        tell_error(past.problem)
        return past.problem.exit_code
    return 0


ACTS: dict[str, click.Command] = {
    "show": show,
    "export": export,
    "verify": verify,
    "raise": raise_total,
    "migrate": migrate,
    "adopt": adopt,
    "backup": backup,
    "recover": recover,
}


@click.command(context_settings=WIDE)
@click.argument("catalog")
@click.option("--check", is_flag=True, help="Forecast every request of the ledger; charge nothing.")
@click.option("--format", "--mode", "format_", metavar="FORMAT", help="How requests are written.")
def upgrade(catalog: str, check: bool, format_: str | None) -> int:
    """Say what this version would charge again of all that the ledger of CATALOG was charged for.

    Nothing is charged, measured or written there. The exit status is 0 where every request is
    free, and 1 where one would be charged or cannot be asked.
    """
    from dpsql.dbapi.upgrading import asked_again
    from dpsql.ui.entries import again_grid
    from dpsql.ui.session import choose_format, write_grid

    if not check:
        hint = f"dpsql upgrade --check {printable(catalog)}"
        raise UsageError("E_USAGE", "an upgrade changes no file, and can be checked", hint=hint)
    chosen = choose_format(format_)
    found = list(asked_again(catalog))
    write_grid(again_grid(found), chosen)
    paid = [each for each in found if each.epsilon]
    refused = sum(each.refusal is not None for each in found)
    amount = decimal_text(sum((each.epsilon for each in paid), Fraction(0)))
    free = sum(each.free for each in found)
    tell(
        f"{free} free, {len(paid)} charged, {refused} cannot be asked: ε {amount} would be charged"
    )
    return 0 if free == len(found) else 1


def tell_status(done: str, status: BudgetStatus) -> None:
    """Tell what a ledger says after an act."""
    tell(f"{done}: ledger {status.ledger_id}, entry {status.seq}, {status.entries} requests")
    tell(f"head {status.head}")
    tell(
        f"total ε {floor_text(status.total_epsilon, 12)}, "
        f"remaining ε {floor_text(status.remaining_epsilon, 12)}"
    )
