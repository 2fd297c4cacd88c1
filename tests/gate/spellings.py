"""Other spellings of what the gate's worlds answer, and those that are not answered alike.

A spelling counts where DuckDB has the same rows for both. It is equal where it is accepted with the
same rows and the same standard errors. Those that are not are a list, which may only shrink.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
from sqlglot.errors import SqlglotError

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.errors import Error
from tests.gate.answers import TooSlow, alike, answered, is_worse
from tests.gate.record import OWN, UNKNOWN, Line, judged, key_of, opened, read_record
from tests.gate.worlds import GateWorld, worlds
from tests.suites.respelled import SEEN, Names, respelled
from tests.suites.suite import _plain
from tests.support.tables import World

UNEQUAL = Path(__file__).with_name("unequal_spellings.txt")
ASKED = "0"
"""First digits of the keys of statements that are spelled otherwise: one in 16, some 3,000
spellings in a quarter of an hour. With more digits the list is of more."""
CROWDED = "crowded"
"""The statement itself, where the catalog has other tables besides: each with one row, and a
privacy unit that is called as a column is."""
OTHER_ROWS, OTHER_ERRORS, OTHER_DIGEST = "rows", "errors", "digest"
"""What is unequal about a spelling that is accepted; the code of the refusal of one that is not."""
_WORD = re.compile(r"[a-z_][a-z0-9_]*")
_UNSTABLE = re.compile(r"\b(limit|fetch|sample|random|arg_m|first|last|any_value|mode)", re.I)
"""Words with which equal statements may have other rows."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A statement, written otherwise in some way."""

    world: str
    sql: str
    kind: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.world} {key_of(self.world, self.sql)} {self.kind}"


class Respelled:
    """A world that is asked in other spellings, with views of its tables, beside itself."""

    def __init__(self, world: GateWorld, stack: ExitStack) -> None:
        self.world = world
        self.connections = stack.enter_context(opened(world))
        plain, self.database = self.connections
        text = plain.catalog.path.read_text("utf-8")
        tables = [name for name in plain.catalog.tables if _WORD.fullmatch(name)]
        for name in tables:
            view = f'"{name}{SEEN}" AS SELECT * FROM "{name}"'
            self.database.execute(f"CREATE OR REPLACE VIEW {view}")
        views = [f'\n[view.{n}{SEEN}]\nsql = "SELECT * FROM {n}"\n' for n in tables]
        self.viewed = self._connected(stack, "viewed", text + "".join(views)) or plain
        self.crowded = self._connected(stack, CROWDED, self._crowd(text))
        self._kept: dict[str, tuple[str, str]] = {}

    def _connected(self, stack: ExitStack, name: str, text: str) -> Connection | None:
        """A connection to another catalog over the same files; None where that is refused."""
        beside = self.connections[0].catalog.path.parent
        path = beside / name / "t.toml"  # in a folder of its own, with a ledger of its own
        path.parent.mkdir(exist_ok=True)
        for file in beside.glob("*.parquet"):
            if not (path.parent / file.name).exists():
                (path.parent / file.name).symlink_to(file)
        path.write_text(text, encoding="utf-8")
        try:
            connection = stack.enter_context(dpsql.connect(path, epsilon=1))
        except Error:
            return None
        connection.set("mechanism", "identity")
        return connection

    def _crowd(self, text: str) -> str:
        """The catalog with a table for each column, whose privacy unit is called as that."""
        catalog = self.connections[0].catalog
        private = [table for table in catalog.tables.values() if not table.public]
        columns = {name for table in private for name in table.columns}
        names = sorted(filter(_WORD.fullmatch, columns))
        units = sorted(set(re.findall(r"^\[unit\.(\w+)\]", text, re.MULTILINE)))
        if len(units) == 1:  # until now it was that of every table that does not say
            text = re.sub(
                r"(privacy_unit = \{ (?:column|through)(?:(?!unit =)[^}])*?) \}",
                rf'\1, unit = "{units[0]}" }}',
                text,
            )
        said = ', unit = "crowd"' if units else ""
        text += "\n[unit.crowd]\n" if units else ""
        for number, name in enumerate(names):
            file = catalog.path.with_name(f"crowd{number}.parquet")  # beside the others
            self.database.execute(f"COPY (SELECT 1 AS \"{name}\", 0 AS o{number}) TO '{file}'")
            text += (
                f'\n[table.crowd{number}]\nsource = "{file.name}"\n'
                f'privacy_unit = {{ column = "{name}", max_rows = 1{said} }}\n'
                f"[table.crowd{number}.column]\n"
                f'o{number} = {{ type = "integer", domain = [0, 3] }}\n'
            )
        return text

    @cached_property
    def names(self) -> Names:
        """The tables with their columns, the privacy unit first, and the views."""
        found: dict[str, tuple[str, ...]] = {}
        for key, table in self.connections[0].catalog.tables.items():
            unit = None if table.public else table.unit.column
            columns = (unit.casefold(),) if unit else ()
            found[key] = (*columns, *(name for name in table.columns if name not in columns))
            if self.viewed.catalog.views:
                found[f"{key}{SEEN}"] = ()
        return found

    def spellings(self, sql: str) -> Iterator[Spelling]:
        """The other spellings of a statement that DuckDB answers alike."""
        if self.crowded is not None:
            yield Spelling(self.world.name, sql, CROWDED, sql)
        if _UNSTABLE.search(sql):
            return
        try:
            before = self._rows(sql)
            found = list(respelled(sql, self.names))
        except (duckdb.Error, SqlglotError):
            return
        for kind, text in found:
            try:
                same = self._rows(text) == before
            except duckdb.Error:
                continue
            if same:
                yield Spelling(self.world.name, sql, kind, text)

    def _rows(self, sql: str) -> list[str]:
        rows = self.database.execute(sql).fetchall()
        return sorted(repr([_rounded(_plain(value)) for value in row]) for row in rows)

    def difference(self, spelling: Spelling, line: Line) -> str | None:
        """What is unequal about a spelling of a statement that is accepted; None where nothing is.

        Args: line: what is recorded of the statement.
        """
        connection = self.crowded if spelling.kind == CROWDED else self.viewed
        world: World = (connection or self.viewed, self.database)
        found = judged(world, spelling.text)
        if found.startswith("E_"):
            return found.split()[0]
        if found == line.verdict or line.answer == UNKNOWN:
            return None
        if spelling.kind == CROWDED:
            return OTHER_DIGEST
        try:
            answer, errors, _ = answered(world, spelling.text)
            expected, expected_errors = self._answer(spelling.sql)
        except TooSlow:
            return None
        except Error as error:
            return error.code
        if not alike(expected, answer):
            return OTHER_ROWS
        if is_worse(expected_errors, errors) or is_worse(errors, expected_errors):
            return OTHER_ERRORS
        return None

    def _answer(self, sql: str) -> tuple[str, str]:
        if sql not in self._kept:
            answer, errors, _ = answered((self.viewed, self.database), sql)
            self._kept[sql] = answer, errors
        return self._kept[sql]


def _rounded(value: Any) -> Any:
    return f"{value:.9g}" if isinstance(value, float) else value


def unequal(
    record: Mapping[str, Line], every: int = 1, names: Collection[str] = (), seed: int = 0
) -> Iterator[tuple[Spelling, str | None]]:
    """Spellings, one in ``every``, each with what is unequal about it, if that is something."""
    draw = random.Random(f"spellings {seed}")
    for world in worlds():
        if names and world.name not in names:
            continue
        lines = {sql: record.get(key_of(world.name, sql)) for sql in world.asked}
        asked = [
            (sql, line)
            for sql, line in lines.items()
            if line is not None
            and line.key[0] in ASKED
            and line.is_accepted
            and line.verdict != OWN
            and draw.random() * every < 1
        ]
        if not asked:
            continue
        with ExitStack() as stack:
            respelling = Respelled(world, stack)
            for sql, line in asked:
                for spelling in respelling.spellings(sql):
                    yield spelling, respelling.difference(spelling, line)


def read_unequal() -> dict[str, str]:
    """What is known to be unequal: names of spellings, each with what is unequal."""
    rows = UNEQUAL.read_text("utf-8").splitlines()
    return {name: why for name, _, why in (row.rpartition(" ") for row in rows)}


def write_unequal() -> Counter[str]:
    """Write the list of what is unequal anew; return how many spellings there are of which kind."""
    found = list(unequal(read_record()))
    rows = [f"{spelling.name} {why}\n" for spelling, why in found if why]
    UNEQUAL.write_text("".join(rows), encoding="utf-8")
    return Counter(why or "equal" for _, why in found)
