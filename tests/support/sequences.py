"""Hypothesis strategies: what a session does, one thing after another, over one pool of content.

Statements of a sequence are put together from few keys, aggregates and conditions, so that many ask
for the same in another order, under other names, in other forms or as a part of something larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.support.effort import IS_LARGE
from tests.support.statements import (
    KEYS,
    Measured,
    Statement,
    aggregates,
    conditions,
    pick,
    statements,
)

MOST = 30 if IS_LARGE else 12
"""Steps of the longest sequences, each of which takes half a second of CPU."""

SETTINGS = (
    *("epsilon = 1", "epsilon = 0.25", "epsilon = 4", "epsilon = 1"),
    *("noise = laplace", "noise = gaussian", "noise = auto", "noise = laplace"),
    *("mechanism = identity", "mechanism = identity", "mechanism = auto"),
    *("reuse = auto", "reuse = auto", "reuse = always", "reuse = never"),
    *("fresh = on", "fresh = off", "nonnegative = on", "nonnegative = off"),
)
NAMES = ("x", "y", "z", "n", "k", "total")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a session does: ask, explain, foretell, set, script, workload or restart.

    ``who`` is which of the connections does it.
    """

    kind: str
    who: int
    statements: tuple[Statement, ...] = ()
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """What the statements of a sequence are made of."""

    keys: Sequence[str]
    measured: Sequence[Measured]
    where: Sequence[str]


@st.composite
def sequences(draw: st.DrawFn) -> list[Step]:
    """The steps of two connections to one catalog."""
    pool = Pool(
        draw(st.lists(KEYS, min_size=1, max_size=3, unique=True)),
        draw(st.lists(aggregates(), min_size=2, max_size=4)),
        ["", *(f" WHERE {draw(conditions())}" for _ in range(2))],
    )
    known = [draw(asked(pool)) for _ in range(3)]
    again = reordered(pool, draw(st.sampled_from(pool.where)))
    one = st.one_of(again, again, st.sampled_from(known), asked(pool), statements())
    return draw(st.lists(steps(one), min_size=5, max_size=MOST))


@st.composite
def steps(draw: st.DrawFn, one: st.SearchStrategy[Statement]) -> Step:
    """One step."""
    kind = draw(
        pick(
            *(*["ask"] * 6, *["explain"] * 3, "foretell", "foretell"),
            *("set", "set", "set", "script", "workload", "restart"),
        )
    )
    who = draw(st.integers(0, 1))
    if kind == "restart":
        return Step(kind, who)
    if kind == "set":
        return Step(kind, who, setting=draw(pick(*SETTINGS)))
    count = 3 if kind in ("script", "workload") else 1
    found = draw(st.lists(one, min_size=1, max_size=count))
    return Step(kind, who, tuple(found))


@st.composite
def reordered(draw: st.DrawFn, pool: Pool, where: str) -> Statement:
    """All that the pool has, in some order and under some names."""
    keys, measured = draw(st.permutations(pool.keys[:1])), draw(st.permutations(pool.measured))
    names = draw(st.permutations(NAMES))
    items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
    items += [f"{m.sql} AS {name}" for m, name in zip(measured, names, strict=False)]
    text = f"SELECT {', '.join(items)} FROM t{where} GROUP BY {', '.join(keys)}"
    return Statement(text, len(keys), tuple(measured))


@st.composite
def asked(draw: st.DrawFn, pool: Pool) -> Statement:
    """A statement of any form made of what the pool has."""
    form = draw(pick("plain", "plain", "plain", "plain", "shown", "nested", "join", "union"))
    keys = draw(st.permutations(pool.keys))[: draw(st.integers(0, len(pool.keys)))]
    measured = draw(st.permutations(pool.measured))[: draw(st.integers(1, len(pool.measured)))]
    where = draw(st.sampled_from(pool.where))
    names = draw(st.permutations(NAMES))
    if form == "join":
        return _join(draw, pool)
    if form == "union":
        return _union(draw, pool, measured[:2])
    items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
    items += [f"{m.sql} AS {name}" for m, name in zip(measured, names, strict=False)]
    group = f" GROUP BY {', '.join(f'k{i}' for i in range(len(keys)))}" if keys else ""
    text = f"SELECT {', '.join(items)} FROM t{where}{group}"
    if form == "plain" or not keys:
        return Statement(text, len(keys), tuple(measured))
    text += f" HAVING COUNT(*) > {draw(pick('0.5', '1.5'))}"
    if form == "nested":
        listed = [f"k{i}" for i in range(len(keys))] + list(names[: len(measured)])
        text = f"SELECT {', '.join(listed)} FROM ({text}) AS q"
    return Statement(text, len(keys), tuple(measured), whole=False)


def _side(draw: st.DrawFn, pool: Pool, key: str, measured: Measured, name: str) -> str:
    where = draw(st.sampled_from(pool.where))
    least = draw(pick("0.5", "0.5", "1.5"))
    return (
        f"(SELECT {key} AS k, {measured.sql} AS {name} FROM t{where} GROUP BY k "
        f"HAVING COUNT(*) > {least})"
    )


def _join(draw: st.DrawFn, pool: Pool) -> Statement:
    """Two sub-queries over the same key: every kind of join, equal names, groups of one side."""
    key = draw(st.sampled_from(pool.keys))
    counts = [each for each in pool.measured if each.kind == "sum"] or [Measured("COUNT(*)")]
    left, right = draw(st.sampled_from(counts)), draw(st.sampled_from(counts))
    kind = draw(pick("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    first, second = draw(pick("n n", "n m")).split()
    one = _side(draw, pool, key, left, first)
    two = _side(draw, pool, key, right, second)
    shown = "coalesce(x.k, y.k)" if kind == "FULL JOIN" else "y.k" if "RIGHT" in kind else "x.k"
    items = [f"x.{first} AS p", f"y.{second} AS q"]
    if draw(st.booleans()):
        items, left, right = items[::-1], right, left
    text = f"SELECT {shown} AS k, {', '.join(items)} FROM {one} AS x {kind} {two} AS y ON x.k = y.k"
    return Statement(text, 1, (left, right), whole=False)


def _union(draw: st.DrawFn, pool: Pool, measured: Sequence[Measured]) -> Statement:
    """Two branches with conditions of their own."""
    branches = []
    for label in ("p", "q"):
        items = ", ".join(f"{m.sql} AS x{i}" for i, m in enumerate(measured))
        where = draw(st.sampled_from(pool.where))
        branches.append(f"SELECT '{label}' AS branch, {items} FROM t{where}")
    return Statement(" UNION ALL ".join(branches), 1, tuple(measured), whole=False)


COLUMNS = ("a", "b", "c", "d", "e", "n")
NARROW = (
    "",
    " WHERE a > 3",
    " WHERE a IN (1, 2)",
    " WHERE b = 'x'",
    " WHERE c",
    " WHERE e IS NULL",
)
BY = ("a", "b", "c", "d", "e", "n", "a // 3", "a > 4", "coalesce(b, 'none')", "e IS NULL")
SUMS = (
    Measured("COUNT(*)"),
    Measured("COUNT(*)"),
    Measured("SUM(a)"),
    Measured("AVG(a)", 0, "mean"),
)


@st.composite
def pairs(draw: st.DrawFn) -> list[Step]:
    """Two requests on terms of their own, of which the first often determines the second."""
    wide = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3, unique=True))
    first = _of(wide, [draw(st.sampled_from(SUMS[:3]))], "")
    found = [by for by in BY if any(column in by.split("'")[0] for column in wide)]
    narrow = draw(st.lists(st.sampled_from(found), max_size=2, unique=True))
    second = _of(narrow, [draw(st.sampled_from(SUMS))], draw(st.sampled_from(NARROW)))
    steps = []
    for statement in (first, second):
        noise, epsilon = (
            draw(pick("laplace", "gaussian", "auto")),
            draw(pick("0.25", "1", "2", "8")),
        )
        mechanism = draw(pick("identity", "identity", "auto"))
        for setting in (f"noise = {noise}", f"epsilon = {epsilon}", f"mechanism = {mechanism}"):
            steps.append(Step("set", 0, setting=setting))
        steps.append(Step("ask", 0, (statement,)))
    return steps


@st.composite
def twins(draw: st.DrawFn) -> list[Step]:
    """Requests that are hard to tell apart: the same in another order, or texts of equal length."""
    keys = draw(st.lists(st.sampled_from(COLUMNS), max_size=1))
    measured = draw(st.lists(st.sampled_from(SUMS[1:]), min_size=2, max_size=3, unique=True))
    least, other = draw(st.permutations(range(1, 5)))[:2]
    first = _of(keys, measured, f" WHERE a > {least}")
    again = _of(keys, measured[::-1], f" WHERE a > {least}")
    apart = _of(keys, measured, f" WHERE a > {other}")
    asked = [Step(draw(pick("ask", "explain")), 0, (each,)) for each in (first, apart)]
    fresh = Step("set", 0, setting=draw(pick("fresh = on", "fresh = off")))
    return [
        fresh,
        *draw(st.permutations(asked)),
        Step("ask", 0, (again,)),
        Step("ask", 0, (apart,)),
    ]


def _of(keys: Sequence[str], measured: Sequence[Measured], where: str) -> Statement:
    items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
    items += [f"{m.sql} AS x{i}" for i, m in enumerate(measured)]
    group = f" GROUP BY {', '.join(f'k{i}' for i in range(len(keys)))}" if keys else ""
    return Statement(f"SELECT {', '.join(items)} FROM t{where}{group}", len(keys), tuple(measured))
