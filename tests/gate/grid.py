"""The grid: forms of SQL that each work alone, put together, and which do not work together.

Those that are refused, or answered otherwise than by DuckDB, are a list, which may only shrink: how
many work together may only rise.

Some with other rows than DuckDB's are right. A declared group that nobody is in is shown at the top
of a statement, and by joins there: beside others, in a running total, and less the mean of groups,
it is a row that is not 0. And a group of two rows is not taken to exist where a half and four
standard errors are more. They are those that DuckDB answers alike once the statement says which
groups there are; they are listed by name, and are no holes.
"""

from __future__ import annotations

import itertools
import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpsql.errors import Error
from tests.gate.answers import EQUAL, TooSlow, answered
from tests.gate.record import judged, opened
from tests.gate.worlds import worlds
from tests.support.tables import World

FORMS = Path(__file__).with_name("grid.toml")
HOLES = Path(__file__).with_name("grid_holes.txt")
WORLD = "strangers"
MORE = 700
"""Statements in which three parts or more are not the plain ones: so many are drawn, once."""
OTHER_ROWS = "rows"
GROUPS = "groups"
"""The verdict on other rows that are DuckDB's where groups are said to have rows: right by rule."""
_SAID = " HAVING COUNT(*) > 0.5"
_PRODUCT = re.compile(r"^(ROLLUP) \((.*)\)$")


@dataclass(frozen=True, slots=True)
class Combined:
    """A statement that is put together of forms; ``kind`` says of how many that are not plain.

    ``said`` is the same with groups that are said to have rows.
    """

    kind: str
    parts: tuple[str, ...]
    sql: str
    said: str

    @property
    def name(self) -> str:
        return f"{self.kind}: {' | '.join(self.parts)}"


def combinations() -> Iterator[Combined]:
    """Every statement of the grid: the product of forms and features, singles, pairs, and more."""
    said = tomllib.loads(FORMS.read_text("utf-8"))
    forms, features = said["cross"]["forms"], said["cross"]["features"]
    for (form, source), (feature, text) in itertools.product(forms.items(), features.items()):
        sql = text.format(f=source)
        if form == "CTE":
            sql = f"WITH c AS (SELECT * FROM visits) {sql}"
        is_open = "GROUP BY" in text and "HAVING" not in text
        yield Combined("cross", (form, feature), sql, sql + _SAID * is_open)
    parts: dict[str, dict[str, str]] = said["parts"]
    plain = tuple(next(iter(choices)) for choices in parts.values())
    every = list(itertools.product(*parts.values()))
    apart = {names: sum(a != b for a, b in zip(names, plain, strict=True)) for names in every}
    more = random.Random(3).sample([names for names in every if apart[names] > 2], MORE)
    for kind, chosen in (
        ("single", [names for names in every if apart[names] < 2]),
        ("pair", [names for names in every if apart[names] == 2]),
        ("more", more),
    ):
        for names in chosen:
            texts = [choices[name] for choices, name in zip(parts.values(), names, strict=True)]
            is_open = bool(texts[3]) and "HAVING" not in texts[4]
            ways = [_statement(having, *texts) for having in ("", _SAID * is_open)]
            yield Combined(kind, names, *ways)


def _statement(
    having: str, source: str, where: str, aggregate: str, group: str, around: str
) -> str:
    """One statement of parts; a key is shown, and grouped by as it is without its name."""
    rollup = _PRODUCT.match(group)
    shown = rollup[2] if rollup else group
    key = group.removesuffix(" AS g")
    test = f" WHERE {where}" if where else ""
    grouped = f" GROUP BY {key}{having}" if key else ""
    item = f"{shown}, " if shown else ""
    return around.format(q=f"SELECT {item}{aggregate} AS x FROM {source}{test}{grouped}")


def outcomes(every: int = 1, seed: int = 0) -> Iterator[tuple[Combined, str | None]]:
    """Statements that DuckDB takes, one in ``every``, each with its hole, None where it is none."""
    draw = random.Random(f"grid {seed}")
    chosen: Sequence[Combined] = [each for each in combinations() if draw.random() * every < 1]
    world = next(each for each in worlds() if each.name == WORLD)
    with opened(world) as connections:
        connections[0].set("epsilon", "100")  # small groups are above what noise makes likely
        for each in chosen:
            try:
                connections[1].execute(f"EXPLAIN {each.sql}")
            except duckdb.Error:
                continue
            yield each, hole(connections, each)


def hole(world: World, combined: Combined) -> str | None:
    """The code of the refusal of a statement, or how its rows differ; None where they do not."""
    found = judged(world, combined.sql)
    if found.startswith("E_"):
        return found.split()[0]
    try:
        if answered(world, combined.sql)[2] == EQUAL:
            return None
        return GROUPS if answered(world, combined.said)[2] == EQUAL else OTHER_ROWS
    except TooSlow:
        return None
    except Error as error:
        return error.code


def counted(found: Sequence[tuple[Combined, str | None]]) -> Counter[str]:
    """How many statements of each kind there are, are accepted, and have DuckDB's rows."""
    counts: Counter[str] = Counter()
    for each, missing in found:
        counts[each.kind] += 1
        counts[f"{each.kind} accepted"] += missing in (None, GROUPS, OTHER_ROWS)
        counts[f"{each.kind} right"] += missing in (None, GROUPS)
    return counts


def read_holes() -> dict[str, str]:
    """Names of statements that do not work, each with why."""
    rows = HOLES.read_text("utf-8").splitlines()
    return {name: why for name, _, why in (row.rpartition(" ") for row in rows)}


def write_holes() -> Counter[str]:
    """Write the list of what does not work anew; return the counts."""
    found = list(outcomes())
    rows = [f"{each.name} {missing}\n" for each, missing in found if missing]
    HOLES.write_text("".join(rows), encoding="utf-8")
    return counted(found)
