"""A page that shows how a budget was used up: self-contained, readable in the dark and printed."""

from __future__ import annotations

import html
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import decimal_text
from dpsql.ui.entries import about, brief_grid, summed_grid
from dpsql.ui.formats import render_html
from dpsql.ui.style import Style

if TYPE_CHECKING:
    from dpsql.dbapi.history import HistoryEntry

POINTS = 200
"""Steps of the line: what is left is worked out for each, which takes milliseconds."""
WIDTH, HEIGHT, EDGE = 720, 240, 44

STYLE = """:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#d0d7de;--line:#0969da}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--soft:#30363d;--line:#58a6ff}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;
max-width:60rem;padding:0 1rem}svg{width:100%;height:auto}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.2rem .6rem;
border-bottom:1px solid var(--soft);vertical-align:top}td.number{text-align:right}
td:last-child{overflow-wrap:anywhere;min-width:16rem}text{fill:var(--ink);font-size:12px}
@media print{body{margin:0;max-width:none}}"""


def burn_down_page(title: str, moments: Sequence[HistoryEntry], budget: str = "") -> bytes:
    """The page of a ledger: the line of what was left, sums by month, and every entry.

    Args:
        title: heading, escaped here.
        moments: entries of the ledger, in order, with what was left after each.
        budget: name of a nested budget in the ledger; empty for the whole one.

    Returns: one page of HTML in UTF-8 that loads nothing.
    """
    name = html.escape(title)
    parts = [
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{name}</title>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<style>{STYLE}</style></head><body><h1>{name}</h1>",
        f"<p>{html.escape(_summary(moments, budget))}</p>",
        draw_line(moments, budget),
        f"<h2>By month</h2><div class=wide>{_table(moments, budget)}</div>",
        "<h2>Every entry</h2><div class=wide>",
        "".join(render_html(brief_grid(moments), Style())),
        "</div></body></html>\n",
    ]
    return "\n".join(parts).encode()


def _table(moments: Sequence[HistoryEntry], budget: str) -> str:
    return "".join(render_html(summed_grid(moments, "month", budget), Style()))


def _summary(moments: Sequence[HistoryEntry], budget: str) -> str:
    if not moments:
        return "Nothing was charged."
    last = moments[-1]
    total, left = last.total(budget), last.left(budget)
    count = sum(moment.entry.kind == "debit" for moment in moments)
    if total is None or left is None:
        return f"{count:,} requests; the entries contradict each other from some place on."
    amounts = f"of epsilon {decimal_text(total)}, {decimal_text(left)} can still be asked for"
    return f"{count:,} requests until {last.entry.at[:10]}; {amounts}."


def draw_line(moments: Sequence[HistoryEntry], budget: str = "") -> str:
    """Draw what one more request could have asked for, entry by entry, as a stepped line."""
    stride = max(1, -(-len(moments) // POINTS))
    chosen = [*moments[:-1:stride], *moments[-1:]]
    known = [(moment, moment.left(budget), moment.total(budget)) for moment in chosen]
    points = [(m, left, total) for m, left, total in known if left is not None and total]
    if not points:
        return ""
    top = max(max(left, total or Fraction(0)) for _, left, total in points)
    seqs = [moment.entry.seq for moment, _, _ in points]
    span = max(1, seqs[-1] - seqs[0])

    def place(seq: int, amount: Fraction) -> tuple[float, float]:
        across = EDGE + (WIDTH - 2 * EDGE) * (seq - seqs[0]) / span
        return across, HEIGHT - EDGE + (2 * EDGE - HEIGHT) * float(amount / top)

    path, dots = "", ""
    for moment, left, _ in points:
        x, y = place(moment.entry.seq, left)
        path += f"H{x:.1f}V{y:.1f}" if path else f"M{x:.1f} {y:.1f}"
        told = html.escape(
            f"{moment.entry.at[:10]}: {decimal_text(left)} left. {about(moment)}"[:200]
        )
        dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="var(--line)">'
        dots += f"{dot}<title>{told}</title></circle>"
    base = HEIGHT - EDGE
    first, last = points[0][0].entry.at[:10], points[-1][0].entry.at[:10]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="what was left of the budget">'
        f'<path d="M{EDGE} {EDGE}V{base}H{WIDTH - EDGE}" fill="none" stroke="var(--soft)"/>'
        f'<path d="{path}" fill="none" stroke="var(--line)" stroke-width="2"/>{dots}'
        f'<text x="{EDGE - 6}" y="{EDGE + 4}" text-anchor="end">{decimal_text(top)}</text>'
        f'<text x="{EDGE - 6}" y="{base + 4}" text-anchor="end">0</text>'
        f'<text x="{EDGE}" y="{base + 20}">{first}</text>'
        f'<text x="{WIDTH - EDGE}" y="{base + 20}" text-anchor="end">{last}</text></svg>'
    )
