"""``dpsql run``: a whole SQL file as one workload with one charge."""

from __future__ import annotations

import contextlib
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import UsageError, printable
from dpsql.records import dataclass
from dpsql.ui.formats import FORMATS, encode, find_format
from dpsql.ui.grid import Grid, floor_text
from dpsql.ui.narration import Progress, tell, tell_cost, tell_note
from dpsql.ui.report import (
    BatchAnswer,
    BatchReport,
    name_answer,
    protection,
    summary_json,
    summary_markdown,
)
from dpsql.ui.report_page import render_report
from dpsql.ui.session import MAX_ROWS, choose_format, list_results, write_grid
from dpsql.ui.streams import SUMMARY, OutputDirectory, OutputFile, read_text
from dpsql.ui.style import Style, stdout_style

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection, Explanation, Result


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The order of ``dpsql run``: its file, and the use of the answers."""

    file: str
    out: Path | None = None
    report: Path | None = None
    format: str | None = None
    stddev: bool | None = None
    formulas: bool = False
    force: bool = False
    dry_run: bool = False
    given: frozenset[str] = frozenset()
    """The settings that the command line says."""

    @property
    def with_errors(self) -> bool:
        """True if errors are columns: in files unless it is said otherwise, elsewhere if it is."""
        return self.out is not None if self.stddev is None else self.stddev


def run_batch(connection: Connection, order: RunOptions) -> None:
    """Forecast, charge once, and write every answer.

    All that can be checked is checked before the charge: format, places to write, every
    statement. A run that fails leaves no file behind.

    Raises: dpsql.Error.
    """
    chosen = _choose_format(order)
    from dpsql.dbapi.run_options import ask_from, refuse_other_terms  # the engine: a second

    text = read_text(order.file)
    refuse_other_terms(connection.engine, text, connection.terms, order.given)
    ask_from(connection.engine, "" if order.file == "-" else Path(order.file).name)
    with contextlib.ExitStack() as stack:
        out = report = None
        if order.out is not None:
            out = stack.enter_context(OutputDirectory(order.out, order.force))
        if order.report is not None:
            report = stack.enter_context(OutputFile(order.report, order.force))
        from dpsql.dbapi.affordability import refuse_over_budget  # the engine: a second

        with Progress(sys.stderr, "planning") as progress:
            connection.report = progress.say
            forecast = connection.explain(text)
        _check_stdout(order, chosen, forecast)
        if order.dry_run:
            print(*forecast.lines(None), sep="\n")
            own = connection.analyst and f"analyst:{connection.analyst}"
            refuse_over_budget(connection.budget, own, forecast)
            with Progress(sys.stderr, "rehearsing") as progress:
                connection.report = progress.say
                connection.rehearse(text)
            return
        for line in forecast.lines(None):
            tell(line)
        with Progress(sys.stderr, "measuring") as progress:
            connection.report = progress.say
            results = list_results(connection.executescript(text))
        batch = _gather(connection, order, forecast, results, chosen)
        try:
            _deliver(order, batch, chosen, out, report)
        except Exception:
            tell("the answers are paid for: the same command again costs nothing")
            raise
    _tell_end(order, batch, results)


def _deliver(
    order: RunOptions,
    batch: BatchReport,
    chosen: str,
    out: OutputDirectory | None,
    report: OutputFile | None,
) -> None:
    """Write what was ordered: folder, page, and without a folder the answers to stdout."""
    if report is not None:
        report.commit(render_report(batch))
    if out is not None:
        _write_folder(out, batch, chosen, Style(order.with_errors, formulas=order.formulas))
    else:
        style = stdout_style(order.with_errors, MAX_ROWS, formulas=order.formulas)
        _print_answers(batch, chosen, style)


def _choose_format(order: RunOptions) -> str:
    if order.out is not None and order.format is None:
        return "csv"
    return choose_format(order.format)


def _check_stdout(order: RunOptions, chosen: str, forecast: Explanation) -> None:
    """Refuse what stdout cannot take, before the charge."""
    if order.out is not None or order.dry_run or FORMATS[chosen].encode is None:
        return
    if len(forecast.statements) > 1 or sys.stdout.isatty():
        where = "a terminal" if sys.stdout.isatty() else "one stream of several results"
        raise UsageError("E_FORMAT", f"{chosen} does not fit {where}", hint="add --out DIR")


def _gather(
    connection: Connection,
    order: RunOptions,
    forecast: Explanation,
    results: list[Result],
    chosen: str,
) -> BatchReport:
    extension = find_format(chosen).extension
    answers: list[BatchAnswer] = []
    for result in results:
        if result.kind != "answer" or not result.columns:
            continue
        name = name_answer(len(answers) + 1, result)
        file = f"{name}{'.draft' * result.is_draft}.{extension}"
        answers.append(BatchAnswer(name, file if order.out else None, result))
    return BatchReport(
        workload=Path(order.file).name,
        catalog=connection.catalog.path.name,
        forecast=forecast,
        answers=tuple(answers),
        remaining=floor_text(connection.askable[0], 12),
        day=date.today().isoformat(),
        protected=tuple(
            protection(table) for table in connection.catalog.tables.values() if not table.public
        ),
    )


def _write_folder(out: OutputDirectory, batch: BatchReport, chosen: str, style: Style) -> None:
    for answer in batch.answers:
        assert answer.file is not None
        out.write(answer.file, encode(Grid.of(answer.result), chosen, style))
    out.write("summary.md", summary_markdown(batch))
    out.write(SUMMARY, summary_json(batch))
    out.commit()


def _print_answers(batch: BatchReport, chosen: str, style: Style) -> None:
    for i, answer in enumerate(batch.answers):
        is_text = FORMATS[chosen].encode is None
        if is_text and i and chosen != "jsonl":
            sys.stdout.write("\n")
        if chosen == "box":
            sys.stdout.write(f"{answer.name}\n")
        write_grid(Grid.of(answer.result), chosen, style)


def _tell_end(order: RunOptions, batch: BatchReport, results: list[Result]) -> None:
    for note in dict.fromkeys(note for result in results for note in result.notes):
        tell_note(note)
    tell_cost(results)
    tell(f"remaining ε {batch.remaining}")
    if order.out is not None:
        tell(f"{len(batch.answers)} results and a summary in {printable(str(order.out))}")
    if order.report is not None:
        tell(f"report in {printable(str(order.report))}")
