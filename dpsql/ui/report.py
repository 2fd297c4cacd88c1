"""Summaries of a batch run, beside its tables: for people and for programs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpsql.answer.display import errors_text
from dpsql.errors import printable
from dpsql.records import dataclass
from dpsql.ui.formats import Style, json_text, json_value, render_markdown
from dpsql.ui.grid import Grid, floor_text, short

if TYPE_CHECKING:
    from dpsql.answer.result import ReceiptInfo
    from dpsql.catalog.catalog import Table
    from dpsql.dbapi.connection import Explanation, Result
    from dpsql.engine.explanation import ColumnForecast

MAX_NAME = 40
"""Characters of the name of a file: folders of results stay readable."""

ERRORS = (
    *("statement", "column", "expected ±", "largest ±"),
    *("plain noise ±", "times smaller", "at least ±"),
)
"""Expected errors; "at least" is what no strategy could go below for a column alone."""

ALONE = "alone ±"
"""In place of plain noise: each statement by itself with its share of the budget."""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """One statement of a batch with its result and the file that holds it."""

    name: str
    file: str | None
    result: Result


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch that has been answered: on which day (ISO), and whom each table protects."""

    workload: str
    catalog: str
    forecast: Explanation
    answers: tuple[BatchAnswer, ...]
    remaining: str
    day: str
    protected: tuple[str, ...]

    @property
    def is_draft(self) -> bool:
        """True if the answers were asked in scratch mode."""
        return any(answer.result.is_draft for answer in self.answers)

    @property
    def receipt(self) -> ReceiptInfo | None:
        """The receipt of the request, the same for all its answers."""
        receipts = [a.result.receipt for a in self.answers if a.result.receipt is not None]
        return receipts[0] if receipts else None


def name_answer(number: int, result: Result) -> str:
    """Name an answer after its columns, or the first words of its SQL, in safe characters."""
    words = "_".join(result.columns) if result.columns else result.sql[:200]
    return f"{number:03d}_{slug(words)}"


def slug(text: str) -> str:
    """Keep letters, digits and single underscores.

    >>> slug("count_star() AS 'né'"), slug("../..")
    ('count_star_as_n', 'result')
    """
    safe = re.sub(r"[^a-z0-9]+", "_", text.lower().replace("select ", "")).strip("_")
    return safe[:MAX_NAME].strip("_") or "result"


def error_range(result: Result) -> dict[str, dict[str, float | None]]:
    """Return the least and greatest stddev of every noisy column, and how many are not known."""
    return {
        each.name: {
            "min": each.least,
            "max": each.greatest,
            "not_known": each.unknown,
        }
        for each in result.spans
    }


def summary_json(batch: BatchReport) -> bytes:
    """Return the summary for programs; budget amounts are decimal text."""
    forecast = batch.forecast
    facts = {
        "workload": batch.workload,
        "catalog": batch.catalog,
        "draft": batch.is_draft,
        "date": batch.day,
        "protects": list(batch.protected),
        "epsilon": floor_text(forecast.epsilon, 17),
        "delta": floor_text(forecast.delta, 17),
        "noise": forecast.noise,
        "method": forecast.method,
        "free": forecast.free,
        "forecast_rmse": json_value(forecast.rmse),
        "expected_errors": [
            _expected(number, column)
            for number, statement in enumerate(forecast.statements, start=1)
            for column in statement.errors
        ],
        "times_alone": [
            {"statement": number, "column": name, "ratio": json_value(ratio)}
            for number, statement in enumerate(forecast.statements, start=1)
            for name, ratio in statement.ratios
        ],
        "comparisons": {
            comparison_label(name): json_value(rmse) for name, rmse in forecast.comparisons
        },
        "remaining_epsilon": batch.remaining,
        "receipt": _receipt(batch),
        "statements": [_statement(answer) for answer in batch.answers],
    }
    return (json_text(facts, indent=2) + "\n").encode()


def _expected(number: int, column: ColumnForecast) -> dict[str, object]:
    return {
        "statement": number,
        "column": column.name,
        "rmse": json_value(column.rmse),
        "largest": json_value(column.largest),
        "plain_noise": json_value(column.plain),
        "alone": json_value(column.alone),
        "lower_bound": json_value(column.lower),
    }


def _receipt(batch: BatchReport) -> dict[str, object] | None:
    receipt = batch.receipt
    if receipt is None:
        return None
    return {"ledger": receipt.ledger_id, "seq": receipt.seq, "head": receipt.head}


def _statement(answer: BatchAnswer) -> dict[str, object]:
    result = answer.result
    return {
        "name": answer.name,
        "file": answer.file,
        "sql": result.sql,
        "rows": result.count,
        "columns": list(result.columns),
        "stddev": error_range(result),
        "biased": result.biased,
        "notes": list(result.notes),
    }


def summary_markdown(batch: BatchReport) -> bytes:
    """Return the summary for people."""
    forecast = batch.forecast
    lines = [f"# {printable(batch.workload)}", ""]
    lines += [f"- {name}: {printable(fact)}" for name, fact in batch_facts(batch)]
    lines += ["", "## Forecast", ""]
    if not forecast.mixed:
        lines.append("".join(render_markdown(comparison_grid(forecast), Style())))
    lines += ["".join(render_markdown(errors_grid(forecast), Style()))]
    lines += ["## Statements", "", "".join(render_markdown(_statements_grid(batch), Style()))]
    lines += notes_lines(batch)
    return "\n".join(lines).encode()


def batch_facts(batch: BatchReport) -> list[tuple[str, str]]:
    """Return what is true of the whole batch, as (name, fact): its cost, method and receipt."""
    forecast = batch.forecast
    cost = f"ε {floor_text(forecast.epsilon, 12)}"
    cost += f", δ {floor_text(forecast.delta)}" if forecast.delta else ", δ 0"
    facts = [
        *([("draft", "asked in scratch mode: not for publication")] if batch.is_draft else []),
        ("date", batch.day),
        ("catalog", f"{batch.catalog}, {len(batch.answers)} statements"),
        *(("protects", each) for each in batch.protected),
        ("charged", f"nothing: what was released at {cost} answers it" if forecast.free else cost),
        ("remaining", f"ε {batch.remaining}"),
        ("measured", f"with {forecast.noise} noise, {forecast.method}"),
    ]
    receipt = batch.receipt
    if receipt is not None:
        facts.append(("receipt", f"entry {receipt.seq} of ledger {receipt.ledger_id}"))
        facts.append(("head", receipt.head))
    return facts


def protection(table: Table) -> str:
    """Say whose privacy the answers about a table keep.

    >>> from dpsql.catalog.catalog import Table, Unit
    >>> protection(Table("visits", "v.parquet", Unit("patient_id", 8), {}))
    'all rows of one patient_id in visits, of which at most 8 count'
    """
    unit = table.unit
    if unit.column is None and unit.through is None:
        return f"each row of {table.name}"
    whose = unit.name or unit.column
    return f"all rows of one {whose} in {table.name}, of which at most {unit.max_rows} count"


def comparison_grid(forecast: Explanation) -> Grid:
    """List the expected error of this plan and of the alternatives."""
    rows: list[tuple[object, ...]] = [("this plan", short(forecast.rmse))]
    rows += [(comparison_label(name), short(rmse)) for name, rmse in forecast.comparisons]
    return Grid.of_rows(("method", "expected RMSE"), ("text", "number"), rows)


def errors_grid(forecast: Explanation) -> Grid:
    """Every column with its expected error, in its own unit, beside plain noise and the bound.

    Or beside what it has alone, where statements are compared with that.
    """
    rows: list[tuple[object, ...]] = []
    for number, statement in enumerate(forecast.statements, start=1):
        rows += [(number, each.name, *_errors(each)) for each in statement.errors]
        known = dict(statement.ratios)
        for name in dict.fromkeys((*statement.derived, *known)):
            times = f"{1 / known[name]:.3g}" if known.get(name) else ""
            rows.append((number, name, "with its answer", "", "", times, ""))
    columns = [each for statement in forecast.statements for each in statement.errors]
    is_apart = any(each.alone is not None for each in columns) or any(
        statement.ratios for statement in forecast.statements
    )
    names = (*ERRORS[:4], ALONE, *ERRORS[5:]) if is_apart else ERRORS
    return Grid.of_rows(names, ("integer", "text", *["number"] * 5), rows)


def _errors(column: ColumnForecast) -> tuple[str, ...]:
    plain = column.plain if column.alone is None else column.alone
    lower = column.lower
    return (
        short(column.rmse),
        short(column.largest),
        "" if plain is None else short(plain),
        "" if plain is None or not column.rmse else f"{plain / column.rmse:.3g}",
        "not known" if lower is None else short(lower),
    )


def comparison_label(name: str) -> str:
    """Turn the phrase of a comparison into a label.

    >>> comparison_label("with Laplace noise on each query"), comparison_label("is a lower bound")
    ('Laplace noise on each query', 'lower bound')
    """
    return re.sub(r"^(with|is an?) ", "", name)


def _statements_grid(batch: BatchReport) -> Grid:
    rows: list[tuple[object, ...]] = []
    for answer in batch.answers:
        text = errors_text(answer.result, " ±")
        text = "; ".join(each for each in (text, "biased" if answer.result.biased else "") if each)
        where = answer.file or answer.name
        rows.append((where, answer.result.count, text, " ".join(answer.result.sql.split())))
    return Grid.of_rows(
        ("file", "rows", "stddev", "statement"), ("text", "integer", "text", "text"), rows
    )


def notes_lines(batch: BatchReport) -> list[str]:
    """List what has to be said about the answers, each once with the answers it is about."""
    found: dict[str, list[str]] = {}
    for answer in batch.answers:
        for note in answer.result.notes:
            found.setdefault(note, []).append(answer.name[:3])
    lines = [
        f"- {printable(note)}" + (f" ({', '.join(n)})" if len(n) < len(batch.answers) else "")
        for note, n in found.items()
    ]
    return ["## Notes", "", *lines, ""] if lines else []
