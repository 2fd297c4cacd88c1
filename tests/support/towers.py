"""Statements that grow: every production of the grammar that contains itself, nested and chained.

Wherever an accepted statement has a node within one of its kind, or two of a kind in a row, what
is around the inner one, or what follows the first, may be repeated, as in the pumping lemma.
``python -m tests.support.towers FOLDER SHARE OF`` compiles each with little memory, and prints
those whose work grows faster than the square of their text.
"""

from __future__ import annotations

import gc
import json
import random
import re
import resource
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import lark

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.sql.depth import MAX_DEPTH
from dpsql.sql.lexemes import split_statements
from dpsql.sql.parse import parse
from tests.support.grammar import canonical, parser, read_cases
from tests.support.oracle import VALUES, open_world

EXPRESSIONS = {
    *("or", "and", "not", "compare_tuples", "in_tuples", "in_rows", "compare", "equals_any"),
    *("between", "in", "in_query", "in_values", "in_list", "like", "matches", "is", "bitwise"),
    *("distinct_from", "add", "multiply", "minus", "plus", "flipped", "cast_to", "case", "cast"),
    *("call", "extract", "place", "list_of_answers", "field", "aggregate", "window"),
}
WRAPPERS = {"row", "cell", "row_atom", "cell_atom", "scalar"}
"""Expressions that have the text of another."""
QUERIES = {"query", "nested"}
WIDE = "( a + e + q + w )"
"""What stands for a column of numbers, so that its sums and products are many."""
LEVELS = (1, 2, 4, 8, 12, 16)
STEEP = 30.0
"""Times as much work as the square of the text asks for; eight levels that double are 256."""
LEAST = 0.005
"""Seconds of CPU below which differences are those of the clock."""
MEMORY = 512 << 20
MORE = 96.0
"""Mebibytes that one statement may take beside what others took before it."""


@dataclass(frozen=True, slots=True)
class Tower:
    """A statement of which ``left``, before its core, and ``right``, after it, may be repeated."""

    kind: tuple[str, ...]
    before: str
    left: str
    core: str
    right: str
    after: str

    def sql(self, levels: int) -> str:
        """The statement with so many levels."""
        return self.before + self.left * levels + self.core + self.right * levels + self.after

    @property
    def levels(self) -> list[int]:
        """Numbers of levels, the deepest as deep as statements may be."""
        return [n for n in LEVELS if self.left.count("(") * n <= MAX_DEPTH - 10]


def _kind(node: lark.Tree[lark.Token]) -> str:
    name = str(node.data)
    if name in EXPRESSIONS | WRAPPERS:
        return "expression"
    return "query" if name in QUERIES else name


def _place(node: lark.Tree[lark.Token]) -> tuple[int, int]:
    return node.meta.start_pos, node.meta.end_pos


def _inner(
    node: lark.Tree[lark.Token], kind: str, path: str
) -> Iterator[tuple[str, lark.Tree[lark.Token]]]:
    """The nearest nodes of a kind within another."""
    for child in node.children:
        if isinstance(child, lark.Tree):
            if _kind(child) == kind:
                yield f"{path}/{child.data}", child
            else:
                yield from _inner(child, kind, f"{path}/{child.data}")


def towers_of(sql: str) -> Iterator[Tower]:
    """The towers that a statement of the grammar gives."""
    text = canonical(sql)
    try:
        tree = parser().parse(text)
    except lark.exceptions.LarkError:
        return
    for node in tree.iter_subtrees():
        name, kind = str(node.data), _kind(node)
        if getattr(node.meta, "empty", True):
            continue
        start, end = _place(node)
        for path, found in _inner(node, kind, "") if name not in WRAPPERS else ():
            first, last = _place(found)
            if (first, last) != (start, end):
                opening, closing = ("( ", " )") if kind == "expression" else ("", "")
                left, right = opening + text[start:first], text[last:end] + closing
                kinds: tuple[str, ...] = ("nested", name, text[start:first].split(" ")[0], path)
                yield Tower(kinds, text[:start], left, text[first:last], right, text[end:])
        for one, two in zip(node.children, node.children[1:], strict=False):
            if isinstance(one, lark.Tree) and isinstance(two, lark.Tree) and one.data == two.data:
                first, last = _place(one)[1], _place(two)[1]
                kinds = "chained", name, str(one.data)
                yield Tower(kinds, text[:first], text[first:last], "", "", text[last:])


def _widened(tower: Tower) -> Tower | None:
    """The same over a sum of several columns wherever it is over one of numbers."""
    left, core, right = (
        re.sub(r"(?<![.\w] )\b[aeqmw]\b(?! [.(])", WIDE, each)
        for each in (tower.left, tower.core, tower.right)
    )
    if (left, core, right) == (tower.left, tower.core, tower.right):
        return None
    return Tower((*tower.kind, "wide"), tower.before, left, core, right, tower.after)


def towers() -> list[Tower]:
    """One tower of every kind that accepted statements give, and one over several columns."""
    found: dict[tuple[str, ...], Tower] = {}
    for case in read_cases("accepted.sql"):
        if re.match(r"(?i)\s*(SELECT|WITH|\(|FROM|PIVOT|UNPIVOT)", case.sql):
            for tower in towers_of(case.sql):
                found.setdefault(tower.kind, tower)
    wide = [_widened(each) for each in found.values() if each.kind[0] == "nested"]
    return [*found.values(), *(each for each in wide if each is not None)]


def _compile(connection: Connection, sql: str) -> str:
    """The code of what is wrong with a statement, or "ok"; "late" after the time that is set."""
    try:
        connection.engine.compile([parse(each) for each in split_statements(sql)])
    except dpsql.Error as error:
        return str(error.code)
    except KeyboardInterrupt:
        return "late"
    except MemoryError:
        return "memory"
    return "ok"


def _measured(connection: Connection, sql: str, seconds: float) -> tuple[str, float, float]:
    """The outcome of a statement, its seconds of CPU, and the mebibytes by which the peak rose."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        outcome = _compile(connection, sql)
    finally:
        with suppress(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_PROF, 0)
    spent = time.process_time() - began
    return outcome, spent, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024


def steep(connection: Connection, chosen: list[Tower], every: bool) -> Iterator[str]:
    """The towers that take more than the square of their text, or more memory than there is."""
    for tower in chosen[:10]:
        _measured(connection, tower.sql(1), 60)  # what is imported when it is first needed
    gc.collect()
    gc.freeze()  # a collection of what stays takes longer than most statements, and hits any
    units: list[float] = []
    for tower in chosen:
        least = tower.sql(1)
        _, unit, _ = _measured(connection, least, 60)
        units.append(unit)
        unit = max(unit, statistics.median(units), LEAST)
        for levels in tower.levels if every else tower.levels[-1:]:
            sql = tower.sql(levels)
            most = STEEP * unit * (len(sql) / len(least)) ** 2
            outcome, seconds, peak = _measured(connection, sql, most)
            bad = outcome in ("late", "memory", "E_UNEXPECTED") or seconds > most
            if bad or peak > MORE:
                told = [*tower.kind, levels, outcome, round(seconds / unit), round(peak), sql[:300]]
                yield json.dumps(told)
                break


def main(folder: str, share: str, of: str) -> None:
    """Print what grows too fast of one share of the towers, and how many these are."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGPROF, interrupt)
    rng = random.Random(11)
    rows = [tuple(rng.choice(values) for values in VALUES) for _ in range(40)]
    chosen = [each for n, each in enumerate(towers()) if n % int(of) == int(share)]
    with open_world(Path(folder), rows) as (connection, _):
        _compile(connection, "SELECT b, 1 + SUM(a) FROM t WHERE a > 1 GROUP BY b")
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
        for line in steep(connection, chosen, int(of) == 1):
            print(line, flush=True)
    print(f"compiled {len(chosen)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
