"""Write docs/sql.md and docs/grammar.svg from grammar/: run by `make docs`.

The reference lists the forms of grammar/accepted.sql; the picture shows the rules of
grammar/dpsql.lark as railroad diagrams.
"""

from __future__ import annotations

import re
from pathlib import Path

import lark
import railroad
from lark.grammar import NonTerminal, Rule

from dpsql.logical.functions import TABLE, Fact, names
from dpsql.settings.table import SETTINGS, OptionPlace

ROOT = Path(__file__).parents[1]
GAP = 24
PLACES: dict[Fact, str] = {
    "rows": "Over the columns of a row, and over answers",
    "groups": "Aggregates of answers; of rows, those that the sections above are about",
    "windows": "In windows over answers",
}
TAKERS = {
    OptionPlace.SET: "SET",
    OptionPlace.SELECT: "SELECT",
    OptionPlace.CREATE: "CREATE",
    OptionPlace.FIND: "CREATE DOMAIN",
    OptionPlace.CONNECT: "connect",
    OptionPlace.EXECUTE: "execute",
}
STYLE = """
svg.railroad-diagram { background: #fff; }
path { stroke-width: 1.5; stroke: #345; fill: none; }
text { font: 13px monospace; text-anchor: middle; fill: #123; }
text.name { font: bold 15px sans-serif; text-anchor: start; }
rect { stroke-width: 1.5; stroke: #345; fill: #eef4fa; }
.terminal rect { fill: #fdf6e3; }
"""


def reference() -> str:
    """The text of docs/sql.md: the accepted forms by section, then what is refused and how."""
    head = [
        "# SQL, form by form",
        "",
        "Made by `make docs` from [grammar/accepted.sql](../grammar/accepted.sql) and"
        " [grammar/rejected.sql](../grammar/rejected.sql), which run as tests and tell what every"
        " statement compiles to. The grammar itself is [grammar/dpsql.lark](../grammar/dpsql.lark),"
        " drawn in [grammar.svg](grammar.svg).",
        "",
        "The examples ask a table `t` with columns `a` (integers 0 to 7), `b` (a few texts, others"
        " and NULL), `c` (boolean), `d` (dates by month), `e` (integers -2 to 4), `n` and `w`"
        " (numbers in bins), `m`, `q` and `r` (numbers with bounds); `visits`, of persons with"
        " several rows; and a public table `bands` of ranges.",
    ]
    meanings = _meanings()
    lines = [*head, ""]
    for title, examples in _sections("accepted.sql"):
        shown = "\n".join(line for line in examples.split("\n") if not line.startswith("-- "))
        lines += [f"## {title.capitalize()}", "", meanings[title], "", *_fenced(shown)]
    lines += functions()
    lines += settings()
    lines += [
        "",
        "## What is refused",
        "",
        "Under each statement: the code, the place, the reason.",
    ]
    for title, examples in _sections("rejected.sql"):
        lines += ["", f"### {title.capitalize()}", "", *_fenced(examples)]
    return "\n".join([*lines, ""])


def _fenced(examples: str) -> list[str]:
    return ["```sql", re.sub(r"\n{3,}", "\n\n", examples.strip()), "```", ""]


def _meanings() -> dict[str, str]:
    """What every section of accepted statements is about."""
    parts = (ROOT / "docs" / "forms.md").read_text("utf-8").split("\n## ")[1:]
    return {title: text.strip() for title, _, text in (part.partition("\n") for part in parts)}


def functions() -> list[str]:
    """The names of all functions, by where each may stand."""
    spelled = (each for each in TABLE.values() if each.spelled is not None)
    written = sorted((str(each.kind), each.spelled) for each in spelled)
    others = [f"`{name}` (`{sql}`)" for name, sql in written]
    return [
        "## Functions",
        "",
        *(
            f"{intro}: {', '.join(f'`{name}`' for name in sorted(names(place)))}.\n"
            for place, intro in PLACES.items()
        ),
        f"Of other databases, as DuckDB has them: {', '.join(others)}.",
        "",
    ]


def settings() -> list[str]:
    """A table of all options, and where each may be given."""
    intro = (
        "Where an option may be given: by `SET`, in the OPTIONS of a `SELECT` or a `CREATE` of a"
    )
    intro += " synthetic table, in those of `CREATE DOMAIN` and `CREATE BOUNDS`, to `connect` or"
    intro += " `execute` of Python, or to the command `dpsql`."
    lines = [
        "## Settings",
        "",
        intro,
        "",
        "| name | words | default | given | meaning |",
        "|---|---|---|---|---|",
    ]
    for each in SETTINGS.values():
        places = [f"`{name}`" for taker, name in TAKERS.items() if taker in each.takers]
        places += [] if each.command_line is None else [f"`--{each.name.replace('_', '-')}`"]
        default = SETTINGS[each.key].default
        text = "" if default is None else f"`{each.kind.show(default)}`"
        words = [f"`{w}`" for w in each.kind.known or [w.strip("'") for w in each.kind.offered()]]
        told = (f"`{each.name}`", ", ".join(words), text, ", ".join(places), each.help)
        lines.append(f"| {' | '.join(told)} |")
    return lines


def _sections(name: str) -> list[tuple[str, str]]:
    """The sections of a file of statements, as (title, statements)."""
    parts = (ROOT / "grammar" / name).read_text("utf-8").split("\n--- ")[1:]
    return [(title.strip(), body) for title, _, body in (part.partition("\n") for part in parts)]


def picture() -> str:
    """All rules under each other as one SVG."""
    text = (ROOT / "grammar" / "dpsql.lark").read_text("utf-8")
    parser = lark.Lark(text, parser=None, lexer="basic", maybe_placeholders=False)
    patterns = {t.name: t.pattern for t in parser.terminals}
    rules: dict[str, list[Rule]] = {}
    for rule in parser.rules:
        name = str(rule.origin.name)
        if not name.startswith("_") and "{cell" not in name:
            rules.setdefault(name, []).append(rule)
    helpers = {str(r.origin.name): r for r in parser.rules if str(r.origin.name).startswith("_")}
    drawings = []
    y = GAP
    width = 0
    for name, alternatives in rules.items():
        unique: dict[str, list[railroad.DiagramItem]] = {}
        for rule in alternatives:
            items = [_item(symbol, patterns, helpers) for symbol in rule.expansion]
            unique.setdefault(str([s.name for s in rule.expansion]), items)
        tracks = [railroad.Sequence(*items) for items in unique.values()]
        diagram = railroad.Diagram(railroad.Choice(0, *tracks), css="")
        diagram.format(8)
        pieces: list[str] = []
        diagram.writeSvg(pieces.append)
        body = "".join(pieces).replace("<svg ", f'<svg x="10" y="{y + 8}" ', 1)
        drawings.append(f'<text class="name" x="14" y="{y}">{_plain(name)}</text>{body}')
        y += int(float(diagram.attrs["height"])) + GAP + 16
        width = max(width, int(float(diagram.attrs["width"])))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 20}" height="{y}">'
    return f"{head}\n<style>{STYLE}</style>\n" + "\n".join(drawings) + "\n</svg>\n"


def _plain(name: str) -> str:
    """A rule's name without what it was made from."""
    return name.split("{")[0].replace("_", " ")


def _item(
    symbol: object, patterns: dict[str, lark.lexer.Pattern], helpers: dict[str, Rule]
) -> railroad.DiagramItem:
    name = str(getattr(symbol, "name", symbol))
    if isinstance(symbol, NonTerminal):
        if name in helpers:
            return railroad.OneOrMore(
                railroad.Sequence(
                    *(
                        _item(part, patterns, helpers)
                        for part in helpers[name].expansion
                        if str(part.name) != name
                    )
                )
            )
        return railroad.NonTerminal(_plain(name))
    pattern = patterns[name]
    shown = pattern.value if isinstance(pattern, lark.lexer.PatternStr) else name
    return railroad.Terminal(shown)


def main() -> None:
    """Write both files."""
    (ROOT / "docs" / "sql.md").write_text(reference(), encoding="utf-8")
    (ROOT / "docs" / "grammar.svg").write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
