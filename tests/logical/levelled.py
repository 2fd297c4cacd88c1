"""Levels in the shadow of today's front: what either accepts of the statements of the gate.

What today's front says of a statement is in the gate's record. A statement is *alike* where both
accept it, both refuse it with one code and one caret, or today's front refuses it for what levels
are not about: its text, its values, its functions, its size.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from dpsql.dbapi.connection import Connection
from dpsql.errors import Error
from dpsql.logical.bind.binder import bind_query
from dpsql.logical.bind.catalog_schema import CatalogSchema
from dpsql.logical.bind.scope import NotYetBoundError
from dpsql.logical.facts import PlanFacts
from dpsql.logical.inference import infer_facts
from dpsql.logical.nodes import BoundStatement
from dpsql.logical.rules import ruled
from dpsql.sql.rewrites.declared_views import with_views
from dpsql.sql.rewrites.qualified import unqualified
from dpsql.sql.shell.language import locate
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.gate.answers import refused
from tests.gate.record import FEW, key_of, opened, read_record
from tests.gate.worlds import worlds

UNLIKE = Path(__file__).with_name("unlike_levels.txt")
ABOUT = frozenset(
    (
        *("E_JOIN", "E_SUBQUERY", "E_SET_OP", "E_WINDOW", "E_LIMIT", "E_NO_AGGREGATE"),
        *("E_GROUP_BY", "E_AGGREGATE", "E_UNKNOWN_TABLE", "E_UNKNOWN_COLUMN", "E_ORDER_BY"),
    )
)
"""Codes that names, groups and levels may have."""
ACCEPTED, UNBOUND, ELSEWHERE = "accepted", "unbound", "elsewhere"


@dataclass(frozen=True, slots=True)
class Levelled:
    """A statement, what today's front says of it, and what its plan says: a code with a caret."""

    key: str
    sql: str
    today: str
    now: str
    error: Error | None = None

    @property
    def kind(self) -> str:
        """``alike``, or in which way the two differ."""
        if self.now == UNBOUND:
            return UNBOUND
        if self.today == self.now:
            return "alike"
        one, other = self.today.split(" ")[0], self.now.split(" ")[0]
        if one == other:
            return "caret"
        if other == ACCEPTED:
            return "lax" if one in ABOUT else "alike"
        return "lost" if one == ACCEPTED else "code"


def level_of(connection: Connection, sql: str) -> tuple[BoundStatement, PlanFacts] | None:
    """The plan of a statement with its facts; None for what is no SELECT.

    Raises: dpsql.Error; NotYetBoundError.
    """
    (fragment,) = split_statements(sql)
    statement = parse(fragment)
    if statement.tree is None or statement.kind != "select":
        return None
    catalog = connection.catalog
    schema = CatalogSchema(catalog, connection.engine._public_rows)
    fragment = statement.fragment
    tree = unqualified(statement.tree, catalog)
    tree = with_views(tree, catalog, lambda node: locate(node, fragment))
    bound = bind_query(tree, schema, fragment)
    return infer_facts(ruled(bound), catalog)


def levelled(every: int = 1, names: Collection[str] = (), seed: int = 0) -> Iterator[Levelled]:
    """The statements of the gate, one in ``every``, that are queries to parser and record."""
    draw = random.Random(f"levels {seed}")
    record = read_record()
    for world in worlds():
        apart, together = len(world.asked) > FEW, draw.random() * every < 1
        chosen = [s for s in world.asked if (draw.random() * every < 1 if apart else together)]
        if not chosen or (names and world.name not in names):
            continue
        with opened(world) as (connection, _):
            for sql in chosen:
                key = key_of(world.name, sql)
                line = record.get(key)
                try:
                    (fragment,) = split_statements(sql)
                    statement = parse(fragment)
                except (Error, ValueError):
                    continue
                if line is None or statement.tree is None or statement.kind != "select":
                    continue
                today = ACCEPTED if line.is_accepted else line.verdict
                error = None
                try:
                    level_of(connection, sql)
                    now = ACCEPTED
                except NotYetBoundError:
                    now = UNBOUND
                except Error as found:
                    error, now = found, refused(found)
                yield Levelled(key, sql, today, now, error)


def read_unlike() -> dict[str, str]:
    """The statements whose verdicts differ, by their keys, each with how."""
    rows = UNLIKE.read_text("utf-8").splitlines()
    return {key: kind for key, kind, *_ in (row.split("\t") for row in rows)}


def write_unlike() -> Counter[str]:
    """Write the list of these anew; return how many statements there are of each kind."""
    counts: Counter[str] = Counter()
    rows = []
    for each in levelled():
        counts[each.kind] += 1
        if each.kind not in ("alike", UNBOUND):
            rows.append(f"{each.key}\t{each.kind}\t{each.today}\t{each.now}\n")
    UNLIKE.write_text("".join(rows), encoding="utf-8")
    return counts
