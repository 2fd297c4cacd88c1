"""Statements that grow: every production of the grammar that contains itself, nested and chained.

Wherever an accepted statement has a node within one of its kind, or two of a kind in a row, what
is around the inner one, or what follows the first, may be repeated, as in the pumping lemma. Where
no accepted statement has one, the grammar itself derives it (lists are rules of that kind, too).
To the grammar all functions are one: each has towers of its own within a sum.
``python -m tests.support.towers FOLDER SHARE OF`` compiles each with little memory, and prints
those whose work grows faster than the square of their text.
"""

from __future__ import annotations

import contextlib
import cProfile
import gc
import heapq
import itertools
import json
import random
import re
import resource
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import lark
from lark.grammar import NonTerminal, Rule

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.logical.functions import names
from dpsql.sql.text.depth import MAX_DEPTH
from tests.support.grammar import LADDER, Sampler, canonical, parser, read_cases, verdict
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
WIDE = {"measures": "( a + e + q + w )", "keys": "( a + e + a * e + 1 )"}
"""The text for a column of numbers, so that its sums and products are many.

Measures have powers up to 2, so that those of columns with domains alone are more.
"""
FORMS = (("( ", " )"), ("( ", " , 2 )"), ("( a , ", " )"), ("( ", " , a , 2 )"))
"""Texts around the argument of a call within which calls of the same function stand."""
SEEDS = ("a - e", "IF ( a > e , NULL , NULL )", "IF ( a > e , q , NULL )")
"""Innermost arguments: branches that are NULL are as many as others, and are no products."""
PLAIN = {
    "query": "SELECT COUNT ( * ) FROM t",
    "select": "SELECT COUNT ( * ) FROM t",
    "row": "a",
    "chosen": "COUNT ( * ) FROM t",
    "item": "COUNT ( * )",
    "items": "COUNT ( * )",
    "cell": "COUNT ( * )",
    "cell_atom": "COUNT ( * )",
    "row_atom": "a",
    "from": "FROM t",
    "relation": "t",
    "table": "t",
    "column": "a",
    "name": "a",
    "on": "USING ( a )",
}
"""The texts for rules beside those that are repeated; the others are drawn."""
ROOTS = {
    "row": ("SELECT SUM ( ", " ) FROM t"),
    "cell": ("SELECT a , ", " FROM t GROUP BY a"),
    "group": ("SELECT COUNT ( * ) FROM t ", ""),
    "start": ("", ""),
}
"""Where rules stand in a statement, the nearest first."""
LEVELS = (1, 2, 4, 8, 12, 16)
STEEP = 30.0
"""Times as much time as the square of the text asks for; eight levels that double are 256."""
CALLS = 12.0
"""The same for calls of functions, which no clock and no other process changes."""
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


def _widened(tower: Tower, name: str) -> Tower | None:
    """The same over a sum of several columns wherever it is over one of numbers."""
    left, core, right = (
        re.sub(r"(?<![.\w] )\b[aeqmw]\b(?! [.(])", WIDE[name], each)
        for each in (tower.left, tower.core, tower.right)
    )
    if (left, core, right) == (tower.left, tower.core, tower.right):
        return None
    return Tower((*tower.kind, name), tower.before, left, core, right, tower.after)


def _inside(rule: Rule) -> set[str]:
    return {str(each.name) for each in rule.expansion if isinstance(each, NonTerminal)}


@cache
def _ways_to(goal: str) -> dict[str, tuple[int, Rule | None, str]]:
    """The words that each rule is from one, the production that comes nearer, and to which."""
    found: dict[str, tuple[int, Rule | None, str]] = {}
    order = itertools.count()
    heap: list[tuple[int, int, str, Rule | None, str]] = [(0, 0, goal, None, goal)]
    while heap:
        far, _, name, rule, nearer = heapq.heappop(heap)
        if name in found:
            continue
        found[name] = far, rule, nearer
        for outer in _users()[name]:
            words = far + len(outer.expansion) - 1
            heapq.heappush(heap, (words, next(order) + 1, str(outer.origin.name), outer, name))
    return found


@cache
def _users() -> dict[str, list[Rule]]:
    """The productions in which each rule stands."""
    found: dict[str, list[Rule]] = defaultdict(list)
    for rule in parser().rules:
        for name in _inside(rule):
            found[name].append(rule)
    return found


def _plain(drawn: Sampler, name: str) -> str:
    """The text for a rule that is not repeated."""
    rule, _, atom = name.partition("{")
    return PLAIN.get(atom.rstrip("}") if rule in LADDER else name) or drawn.draw(name, 0)


def _around(drawn: Sampler, rule: Rule, inner: str) -> tuple[str, str]:
    """The words of a production before and after a rule within."""
    words = [
        _plain(drawn, str(each.name))
        if isinstance(each, NonTerminal)
        else drawn.word(str(each.name))
        for each in rule.expansion
    ]
    place = [str(each.name) for each in rule.expansion].index(inner)
    return " ".join(words[:place]) + " ", " " + " ".join(words[place + 1 :])


def _down(drawn: Sampler, name: str, goal: str) -> tuple[str, str]:
    """The words around a rule within another, by the shortest way."""
    before, after = "", ""
    _, rule, name = _ways_to(goal)[name]
    while rule is not None:
        left, right = _around(drawn, rule, name)
        before, after = before + left, right + after
        _, rule, name = _ways_to(goal)[name]
    return before, after


def derived_towers() -> Iterator[Tower]:
    """A tower for each part of a rule of the grammar that contains the rule."""
    drawn, found = Sampler(random.Random(5)), set[tuple[str, ...]]()
    for goal, rules in drawn.rules.items():
        ways = _ways_to(goal)
        roots = [each for each in ROOTS if each in ways]
        for rule in sorted(rules, key=lambda rule: len(rule.expansion)) if roots else ():
            for inner in sorted(_inside(rule) & ways.keys()):
                kind = "derived", goal, str(rule.alias or ""), inner
                if kind in found:
                    continue
                found.add(kind)
                root = min(roots, key=lambda each: ways[each][0])
                first, last = _down(drawn, root, goal)
                left, right = _around(drawn, rule, inner)
                further, back = _down(drawn, inner, goal)
                core = _plain(drawn, goal)
                opening, closing = ROOTS[root]
                yield Tower(
                    kind, opening + first, left + further, core, back + right, last + closing
                )


def _places() -> dict[str, set[int]]:
    """The numbers of arguments of DuckDB's functions that take numbers alone."""
    found: dict[str, set[int]] = defaultdict(set)
    catalogue = "SELECT function_name, parameter_types, varargs FROM duckdb_functions()"
    with contextlib.closing(duckdb.connect()) as database:
        for name, kinds, further in database.execute(catalogue).fetchall():
            if all(
                re.match("[A-Z]*INT|DOUBLE|FLOAT|DECIMAL|ANY|T$", kind or "ANY") for kind in kinds
            ):
                found[name] |= {1, 2, 3} if further else {len(kinds)}
            found[name]
    return found


def called_towers() -> Iterator[Tower]:
    """Towers of each function of numbers within a sum, by place and number of arguments."""
    places, (before, after) = _places(), ROOTS["row"]
    for name, (left, right), seed in itertools.product(names("rows"), FORMS, SEEDS):
        if 1 + (left + right).count(",") in places.get(name, {1, 2, 3}):
            kind = "called", name, left + right, seed
            yield Tower(kind, before, f"{name.upper()} {left}", seed, right, after)


def towers() -> list[Tower]:
    """One tower of every kind that accepted statements give, and one over several columns."""
    found: dict[tuple[str, ...], Tower] = {}
    for case in read_cases("accepted.sql"):
        if re.match(r"(?i)\s*(SELECT|WITH|\(|FROM|PIVOT|UNPIVOT)", case.sql):
            for tower in towers_of(case.sql):
                found.setdefault(tower.kind, tower)
    found.update((each.kind, each) for each in (*derived_towers(), *called_towers()))
    numbers = [each for each in found.values() if each.kind[0] not in ("chained", "called")]
    wide = [_widened(each, name) for each in numbers for name in WIDE]
    return [*found.values(), *(each for each in wide if each is not None)]


def _compile(connection: Connection, sql: str) -> str:
    """The code of what is wrong with a statement, or "ok"; "late" after the time that is set."""
    try:
        found = verdict(connection, sql)
    except KeyboardInterrupt:
        return "late"
    except (MemoryError, SystemError):  # which is how compiled parsers end without memory
        return "memory"
    return str(found.code) if isinstance(found, dpsql.Error) else "ok"


@dataclass(frozen=True, slots=True)
class Effort:
    """The outcome of a statement, seconds of CPU, calls, and mebibytes by which the peak rose."""

    outcome: str
    seconds: float
    calls: int
    peak: float


def _measured(connection: Connection, sql: str, seconds: float) -> Effort:
    """The work of one statement, which is ended after so many seconds."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    profile = cProfile.Profile(builtins=False)
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        profile.enable()
        outcome = _compile(connection, sql)
    finally:
        profile.disable()
        with contextlib.suppress(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_PROF, 0)
    spent = time.process_time() - began
    calls = sum(each.callcount for each in profile.getstats())
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    return Effort(outcome, spent, calls, more / 1024)


def steep(connection: Connection, chosen: list[Tower], every: bool) -> Iterator[str]:
    """The towers that take more than the square of their text, or more memory than there is."""
    for tower in chosen[:10]:
        _measured(connection, tower.sql(1), 60)  # what is imported when it is first needed
    units: list[Effort] = []
    for number, tower in enumerate(chosen):
        if number % 50 == 0:
            gc.collect()
            gc.freeze()  # a collection of what stays takes longer than most statements do
        least = tower.sql(1)
        units.append(_measured(connection, least, 60))
        unit = units[-1].seconds, statistics.median(each.seconds for each in units), LEAST
        calls = units[-1].calls, statistics.median(each.calls for each in units)
        for levels in tower.levels[::-1]:
            sql = tower.sql(levels)
            square = (len(sql) / len(least)) ** 2
            most = STEEP * max(unit) * square
            found = _measured(connection, sql, most)
            bad = found.outcome in ("late", "memory", "E_UNEXPECTED") or found.seconds > most
            if bad or found.peak > MORE or found.calls > CALLS * max(calls) * square:
                times = round(found.seconds / max(unit)), round(found.calls / max(calls))
                told = [*tower.kind, levels, found.outcome, *times, round(found.peak), sql[:300]]
                yield json.dumps(told)
                break
            if found.outcome != "E_TOO_COMPLEX" and not every:
                break  # the highest that is not refused for its size is the dearest


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
