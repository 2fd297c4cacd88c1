"""What a batch run hands over beside its tables: summaries, and one page of HTML.

The page is self-contained: inline SVG, no scripts, nothing fetched.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from dpsql.errors import Error, printable
from dpsql.ui.chart import Bar, bars_of
from dpsql.ui.formats import Style, json_value, render_html, render_markdown
from dpsql.ui.grid import Grid, clip, decimals_for, fixed, floor_text, short

if TYPE_CHECKING:
    from dpsql.answer.result import ReceiptInfo
    from dpsql.dbapi.connection import Explanation, Result

MAX_NAME = 40
"""Characters of the name of a file: folders of results stay readable."""
MAX_BARS = 120
"""Bars of a chart: at 18 points a line, two screens; the table below has every row."""
MAX_ROWS = 1000
"""Rows of a table on the page, which browsers lay out at once."""
LABEL, PLOT, NOTE, LINE = 230, 400, 140, 18
"""Widths of the three columns of a chart, and the height of a line, in points of SVG."""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """One statement of a batch with its result and the file that holds it."""

    name: str
    file: str | None
    result: Result


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch that has been answered."""

    workload: str
    catalog: str
    forecast: Explanation
    answers: tuple[BatchAnswer, ...]
    remaining: str

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


def error_range(result: Result) -> dict[str, dict[str, float]]:
    """Return the least and greatest stddev of every noisy column."""
    found = {}
    for name, deviations in zip(result.columns, result.stddev, strict=True):
        finite = [s for s in deviations or () if s is not None]
        if finite:
            found[name] = {"min": min(finite), "max": max(finite)}
    return found


def summary_json(batch: BatchReport) -> bytes:
    """Return the summary for programs; budget amounts are decimal text."""
    forecast = batch.forecast
    facts = {
        "workload": batch.workload,
        "catalog": batch.catalog,
        "epsilon": floor_text(forecast.epsilon, 17),
        "delta": floor_text(forecast.delta, 17),
        "noise": forecast.noise,
        "method": forecast.method,
        "free": forecast.free,
        "forecast_rmse": json_value(forecast.rmse),
        "comparisons": {
            comparison_label(name): json_value(rmse) for name, rmse in forecast.comparisons
        },
        "remaining_epsilon": batch.remaining,
        "receipt": _receipt(batch),
        "statements": [_statement(answer) for answer in batch.answers],
    }
    return (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode()


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
        "rows": len(result.rows),
        "columns": list(result.columns),
        "stddev": error_range(result),
        "biased": result.biased,
        "notes": list(result.notes),
    }


def summary_markdown(batch: BatchReport) -> bytes:
    """Return the summary for people."""
    forecast = batch.forecast
    lines = [f"# {printable(batch.workload)}", ""]
    lines += [f"- {fact}" for fact in batch_facts(batch)]
    lines += ["", "## Forecast", "", render_markdown(comparison_grid(forecast), Style())]
    lines += ["## Statements", "", render_markdown(_statements_grid(batch), Style())]
    lines += notes_lines(batch)
    return "\n".join(lines).encode()


def batch_facts(batch: BatchReport) -> list[str]:
    """Return cost, method, remaining budget and receipt, one short text each."""
    forecast = batch.forecast
    cost = f"ε {floor_text(forecast.epsilon, 12)}"
    if forecast.delta:
        cost += f", δ {floor_text(forecast.delta)}"
    facts = [
        f"catalog {printable(batch.catalog)}, {len(batch.answers)} statements",
        "free: answered from what was already released" if forecast.free else f"charged {cost}",
        f"{forecast.noise} noise, method {printable(forecast.method)}",
        f"remaining ε {batch.remaining}",
    ]
    receipt = batch.receipt
    if receipt is not None:
        facts.append(f"receipt: ledger {receipt.ledger_id}, entry {receipt.seq}")
        facts.append(f"head of the ledger {receipt.head}")
    return facts


def comparison_grid(forecast: Explanation) -> Grid:
    """List the expected error of this plan and of the alternatives."""
    rows: list[tuple[object, ...]] = [("this plan", short(forecast.rmse))]
    rows += [(comparison_label(name), short(rmse)) for name, rmse in forecast.comparisons]
    return Grid.exact(("method", "expected RMSE"), ("text", "number"), rows)


def comparison_label(name: str) -> str:
    """Turn the phrase of a comparison into a label.

    >>> comparison_label("with Laplace noise on each query"), comparison_label("is a lower bound")
    ('Laplace noise on each query', 'lower bound')
    """
    return re.sub(r"^(with|is an?) ", "", name)


def _statements_grid(batch: BatchReport) -> Grid:
    rows: list[tuple[object, ...]] = []
    for answer in batch.answers:
        errors = error_range(answer.result)
        text = "; ".join(f"{n} ±{_span(e['min'], e['max'])}" for n, e in errors.items())
        text = "; ".join(each for each in (text, "biased" if answer.result.biased else "") if each)
        where = answer.file or answer.name
        rows.append((where, len(answer.result.rows), text, " ".join(answer.result.sql.split())))
    return Grid.exact(
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


def _span(low: float, high: float) -> str:
    return short(low) if short(low) == short(high) else f"{short(low)} to {short(high)}"


CSS = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
body,svg text{color:#1b1f24;fill:#1b1f24}
h1{font-size:1.5rem}
h2{font-size:1.1rem;margin-top:2.5rem;border-top:1px solid #d5dae0;padding-top:1rem}
pre{background:#f5f7f9;padding:.7rem;overflow-x:auto;white-space:pre-wrap}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.15rem .7rem;border-bottom:1px solid #e4e8ec;text-align:left}
td.number,td.error{text-align:right}td.error{color:#5c6773}
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif}
.bar{fill:#7aa7d9}.here{fill:#2f6fb3}.whisker{stroke:#1b1f24;stroke-width:1.2}
.axis{stroke:#8a949e}.small{color:#5c6773;font-size:.85rem}
""".strip()


def render_report(batch: BatchReport) -> bytes:
    """Return the page: facts, forecast against baselines, then every statement."""
    title = escape(printable(f"dpsql: {batch.workload}"))
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in batch_facts(batch))
    sections = "\n".join(_section(answer) for answer in batch.answers)
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
{CSS}
</style></head><body>
<h1>{title}</h1>
<ul>{facts}</ul>
<p>Every number carries the standard deviation (±) of the noise it holds; whiskers are 95 %
intervals. All tables come from one estimate and agree with each other.</p>
<h2>Expected error of this plan and of the alternatives</h2>
{draw_comparison(batch.forecast)}
{sections}
</body></html>
"""
    return page.encode()


def _section(answer: BatchAnswer) -> str:
    grid = Grid.of(answer.result)
    shown = Grid(
        grid.columns,
        grid.types,
        grid.rows[:MAX_ROWS],
        tuple(None if s is None else s[:MAX_ROWS] for s in grid.stddev),
    )
    left_out = len(grid.rows) - len(shown.rows)
    more = f'<p class="small">{left_out} more rows are not shown</p>' if left_out else ""
    notes = "".join(
        f'<p class="small">{escape(printable(note))}</p>' for note in answer.result.notes
    )
    sql = "\n".join(printable(line) for line in answer.result.sql.strip().split("\n"))
    return (
        f"<h2>{escape(answer.name)}</h2>\n<pre>{escape(sql)}</pre>\n"
        f"{_chart(answer, shown)}\n{render_html(shown, Style())}{more}{notes}"
    )


def _chart(answer: BatchAnswer, grid: Grid) -> str:
    try:
        name, bars = bars_of(grid, None, answer.result.intervals)
    except Error:
        return ""
    if not 2 <= len(bars) <= MAX_BARS:
        return ""
    return f'<p class="small">{escape(printable(name))}</p>\n{draw_svg(bars)}'


def draw_svg(bars: list[Bar]) -> str:
    """Draw horizontal bars from zero with whiskers."""
    low = min(0.0, *(bar.low for bar in bars))
    high = max(0.0, *(bar.high for bar in bars))
    scale = PLOT / (high - low) if high > low else 0.0
    decimals = decimals_for(bar.stddev for bar in bars)
    zero = LABEL + (0 - low) * scale
    rows = [_svg_bar(bar, k, low, scale, decimals) for k, bar in enumerate(bars)]
    axis = f'<line class="axis" x1="{zero:.1f}" x2="{zero:.1f}" y1="0" y2="{LINE * len(bars)}"/>'
    return _svg(len(bars), "".join(rows) + axis)


def _svg_bar(bar: Bar, k: int, low: float, scale: float, decimals: int) -> str:
    zero, value, left, right = (
        LABEL + (x - low) * scale for x in (0.0, bar.value, bar.low, bar.high)
    )
    y = LINE * k
    middle = y + LINE / 2
    note = f"{fixed(bar.value, decimals)} ± {fixed(bar.stddev, decimals)}"
    ticks = "".join(
        f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 4}" y2="{middle + 4}"/>'
        for x in (left, right)
    )
    return (
        _svg_label(bar.label, y) + f'<rect class="bar" x="{min(zero, value):.1f}" y="{y + 3}" '
        f'width="{abs(value - zero):.1f}" height="{LINE - 6}"/>'
        f'<line class="whisker" x1="{left:.1f}" x2="{right:.1f}" y1="{middle}" y2="{middle}"/>'
        f'{ticks}<text x="{LABEL + PLOT + 10}" y="{y + 13}">{escape(note)}</text>\n'
    )


def draw_comparison(forecast: Explanation) -> str:
    """Draw the expected errors as bars, this plan first."""
    entries = [("this plan", forecast.rmse)]
    entries += [(comparison_label(name), rmse) for name, rmse in forecast.comparisons]
    entries = [(name, rmse) for name, rmse in entries if not math.isnan(rmse)]
    longest = max((rmse for _, rmse in entries), default=0.0) or 1.0
    rows = [
        _svg_label(name, LINE * k)
        + f'<rect class="{"here" if k == 0 else "bar"}" x="{LABEL}" y="{LINE * k + 3}" '
        f'width="{max(1.0, PLOT * rmse / longest):.1f}" height="{LINE - 6}"/>'
        f'<text x="{LABEL + PLOT + 10}" y="{LINE * k + 13}">{escape(short(rmse))}</text>\n'
        for k, (name, rmse) in enumerate(entries)
    ]
    return _svg(len(entries), "".join(rows))


def _svg_label(text: str, y: int) -> str:
    shown = escape(clip(printable(text), 34))
    return f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{shown}</text>'


def _svg(lines: int, body: str) -> str:
    width, height = LABEL + PLOT + NOTE, LINE * lines + 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">\n{body}</svg>'
    )
