"""One self-contained HTML page about a batch: inline SVG, no scripts, nothing fetched."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from dpsql.errors import Error, printable
from dpsql.ui.chart import Bar, bars_of
from dpsql.ui.formats import Style, render_html
from dpsql.ui.grid import Grid, clip, decimals_for, fixed, short
from dpsql.ui.summary import Answer, Batch, batch_facts, comparison_label

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Explanation

MAX_BARS = 120
MAX_ROWS = 1000
LABEL, PLOT, NOTE, LINE = 230, 400, 140, 18

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


def render_report(batch: Batch) -> bytes:
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


def _section(answer: Answer) -> str:
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


def _chart(answer: Answer, grid: Grid) -> str:
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
