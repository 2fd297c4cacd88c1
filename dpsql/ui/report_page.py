"""The page of a batch run: one file of HTML that needs nothing else.

Inline SVG, styles and CSV; no script, nothing fetched. It reads in light and dark, on a narrow
screen and on paper.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape

from dpsql.answer.rounding import NOT_KNOWN
from dpsql.errors import printable
from dpsql.ui.drawing import draw_column, draw_ratios
from dpsql.ui.formats import encode, render_html
from dpsql.ui.grid import Grid, short
from dpsql.ui.report import (
    BatchAnswer,
    BatchReport,
    batch_facts,
    comparison_label,
    errors_grid,
)
from dpsql.ui.style import Style

MAX_ROWS = 1000
"""Rows of a table on the page, which browsers lay out at once."""
MAX_CSV = 4 << 20
"""Bytes of a table that the page carries as CSV; larger ones belong into files of their own."""
MAX_CHARTS = 4
"""Charts of one statement."""

LEAD = (
    "Answers with differential privacy. Every noisy number has its standard error (±) beside it, "
    f"or that it is {NOT_KNOWN}; whiskers and bands are 95 % intervals."
)
"""The first line; it is true of every report."""
ABOUT_ERRORS = (
    '<p class="small">Each in the unit of its column, as root mean square over its rows. Plain '
    "noise is noise on every number by itself; alone is each statement by itself with its share of "
    "the budget; at least is what no strategy could go below, were "
    "the column asked alone with the whole budget.</p>"
)
"""Explanation of the table of expected errors."""

CSS = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5c6773;--rule:#dde2e8;--back:#fff;
--code:#f5f7f9;--blue:#2f6fb3;--bar:#7aa7d9;--red:#b4532a;
--c0:#2f6fb3;--c1:#c9711d;--c2:#3b8a57;--c3:#9a4fa3;--c4:#8a7a1d}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa5b1;--rule:#343b44;
--back:#14181d;--code:#1d232a;--blue:#6aa9ea;--bar:#3f6f9f;--red:#e08a5f;
--c0:#6aa9ea;--c1:#e8a45c;--c2:#6fc48d;--c3:#c88fd0;--c4:#c9bb5c}}
*{box-sizing:border-box}
body{font:15px/1.55 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;
color:var(--ink);background:var(--back)}
h1{font-size:1.55rem;margin:0}h2{font-size:1.15rem;margin:0 0 .6rem}
section{margin-top:2.2rem;padding-top:1.4rem;border-top:1px solid var(--rule)}
.lead{color:var(--soft);margin:.2rem 0 1.2rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem;margin:1rem 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--code);padding:.7rem .9rem;border-radius:6px;overflow-x:auto;
white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.5 ui-monospace,monospace}
.wide{overflow-x:auto}
table{border-collapse:collapse;margin:.8rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.15rem .8rem .15rem 0;border-bottom:1px solid var(--rule);text-align:left;
vertical-align:top}
th{color:var(--soft);font-weight:600}td.number,td.error{text-align:right}td.error{color:var(--soft)}
nav ol{columns:2 22rem;padding-left:2.2rem}nav li{break-inside:avoid;margin-bottom:.2rem}
a{color:var(--blue)}
.small{color:var(--soft);font-size:.87rem;margin:.4rem 0}
figure{margin:1rem 0}figcaption{color:var(--soft);font-size:.87rem;margin-bottom:.3rem}
svg{max-width:100%;height:auto;display:block}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg text.deep{fill:var(--back)}
.bar{fill:var(--bar)}.here,.cell{fill:var(--blue)}.minus{fill:var(--red)}
.whisker{stroke:var(--ink);stroke-width:1.2}.axis{stroke:var(--soft)}.rule{stroke:var(--rule)}
.line{fill:none;stroke-width:1.6}.band{fill-opacity:.22}
.s0{fill:var(--c0)}.s1{fill:var(--c1)}.s2{fill:var(--c2)}.s3{fill:var(--c3)}.s4{fill:var(--c4)}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}
.l4{stroke:var(--c4)}
@media (max-width:40rem){dl{grid-template-columns:1fr}dt{margin-top:.4rem}}
@media print{body{max-width:none;margin:0;font-size:11pt}nav{break-after:page}
section,figure,pre,tr{break-inside:avoid}section.long{break-inside:auto}a.csv{display:none}}
""".strip()


def render_report(batch: BatchReport) -> bytes:
    """Return the page: facts, contents, forecast, what is counted, then every statement."""
    title = _text(f"dpsql: {batch.workload}")
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>
{CSS}
</style></head><body>
<header><h1>{title}</h1>
<p class="lead">{LEAD}</p>
{_facts(batch)}</header>
<nav><h2>Contents</h2><ol>
{"".join(map(_entry, batch.answers))}</ol></nav>
<section id="forecast"><h2>Expected errors</h2>
{_forecast(batch)}</section>
{_counted(batch)}
{"".join(map(_section, batch.answers))}
</body></html>
"""
    return page.encode()


def _text(text: str) -> str:
    return escape(printable(text))


def _facts(batch: BatchReport) -> str:
    facts = batch_facts(batch)
    body = "".join(f"<dt>{_text(name)}</dt><dd>{_text(fact)}</dd>\n" for name, fact in facts)
    return f"<dl>{body}</dl>"


def _entry(answer: BatchAnswer) -> str:
    rows = answer.result.count
    said = f"{rows:,} row{'' if rows == 1 else 's'}"
    link = f'<a href="#{answer.name}">{_text(_title(answer))}</a>'
    return f'<li>{link} <span class="small">{said}</span></li>\n'


def _title(answer: BatchAnswer) -> str:
    return answer.name.partition("_")[2].replace("_", " ") or answer.name


def _number(answer: BatchAnswer) -> str:
    return f"{int(answer.name.partition('_')[0])}."


def _forecast(batch: BatchReport) -> str:
    forecast = batch.forecast
    if forecast.is_learned:
        return "<p>Answers come from a model: they are biased, and have no standard errors.</p>"
    drawn = ""
    if not forecast.mixed and forecast.rmse > 0:
        entries = [("this plan", forecast.rmse), *forecast.comparisons]
        listed = [(comparison_label(name), rmse, short(rmse)) for name, rmse in entries]
        caption = "Root mean squared error of all numbers, and what simpler mechanisms would give"
        drawn = f"<figure><figcaption>{caption}</figcaption>{draw_ratios(listed)}</figure>"
    return drawn + _errors(batch)


def _errors(batch: BatchReport) -> str:
    """The table of expected errors, and what it means."""
    grid = errors_grid(batch.forecast)
    table = f'<div class="wide">{"".join(render_html(grid, Style()))}</div>{ABOUT_ERRORS}'
    return table if grid.count else ""


def _counted(batch: BatchReport) -> str:
    """Return the section that is true of all answers: which rows never count."""
    notes = dict.fromkeys(n for answer in batch.answers for n in answer.result.standing)
    listed = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return (
        f'<section id="counted"><h2>Which rows count</h2><ul>{listed}</ul></section>'
        if notes
        else ""
    )


def _section(answer: BatchAnswer) -> str:
    result = answer.result
    grid = Grid.of(result)
    shown = grid.first(MAX_ROWS)
    left_out = grid.count - shown.count
    more = f'<p class="small">{left_out:,} more rows are not shown</p>' if left_out else ""
    own = [note for note in result.notes if note not in result.standing]
    notes = "".join(f'<p class="small">{_text(note)}</p>' for note in own)
    sql = "\n".join(printable(line) for line in result.sql.strip().split("\n"))
    long = ' class="long"' if shown.count > 40 else ""
    table = f'<div class="wide">{"".join(render_html(shown, Style()))}</div>'
    return (
        f'<section id="{answer.name}"{long}><h2>{_number(answer)} {_text(_title(answer))}</h2>\n'
        f"<pre>{escape(sql)}</pre>\n{''.join(_charts(answer, grid))}"
        f"{table}{more}{_csv(answer, grid)}{notes}</section>\n"
    )


def _charts(answer: BatchAnswer, grid: Grid) -> Iterator[str]:
    noisy = [j for j, errors in enumerate(grid.stddev) if errors is not None]
    for j in noisy[:MAX_CHARTS]:
        drawn = draw_column(grid, j, answer.result.intervals)
        if drawn:
            yield f"<figure><figcaption>{_text(grid.columns[j])}</figcaption>{drawn}</figure>\n"


def _csv(answer: BatchAnswer, grid: Grid) -> str:
    """A link to the whole table, with the errors of its numbers, that the page itself carries."""
    data = encode(grid, "csv", Style(stddev=True))
    if len(data) > MAX_CSV:
        return ""
    inside = base64.b64encode(data).decode()
    name = f"{answer.name}{'.draft' * answer.result.is_draft}.csv"
    return (
        f'<p class="small"><a class="csv" download="{name}" '
        f'href="data:text/csv;base64,{inside}">CSV with standard errors</a></p>'
    )
