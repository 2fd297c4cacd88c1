"""The gate's record: one line for every statement, and what differs from it.

A line has the key of a statement, its verdict, how its answer is beside DuckDB's, its standard
errors and a sketch of its answer, apart by tabs. The verdict is a digest of what is compiled, or
the code of the refusal with the place of its caret.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import astuple, dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

import dpsql
from dpsql.sql.compiled import Compiled
from tests.gate.answers import EQUAL, NO_SQL, TooSlow, alike, answered, is_worse, refused
from tests.gate.digest import digest, short
from tests.gate.worlds import GateWorld, worlds
from tests.support.grammar import verdict
from tests.support.seam import zero_noise
from tests.support.tables import World

RECORD = Path(__file__).with_name("record.txt")
FEW = 60
"""Statements up to which a world is asked all of them or none."""
OWN = "own"
"""The verdict on a statement that is no SELECT."""
UNKNOWN = "?"
"""In place of an answer that is not kept: it takes too long, or is refused only when asked."""


class Change(Enum):
    """How a statement differs from its line; the last three are failures."""

    SAME = "same digest"
    SHOWN = "same answers, other SQL over them"
    MOVED = "same answers, other digest"
    NEW = "not in the record"
    GAINED = "accepted now"
    REFUSED = "refused otherwise"
    WORSE = "larger standard errors"
    OTHER = "other answers"
    LOST = "refused now"


FREE = frozenset({Change.SAME, Change.SHOWN, Change.NEW})
"""Changes that need no look: the same is measured and answered, or nothing was known of it."""
RED = frozenset({Change.WORSE, Change.OTHER, Change.LOST})
"""Changes that no list excuses."""


@dataclass(frozen=True, slots=True)
class Line:
    """What is recorded of a statement."""

    key: str
    verdict: str
    beside: str = NO_SQL
    forecast: str = UNKNOWN
    answer: str = UNKNOWN

    @property
    def is_accepted(self) -> bool:
        return not self.verdict.startswith("E_")


@dataclass(frozen=True, slots=True)
class Difference:
    """A statement that is not as its line says."""

    change: Change
    world: str
    sql: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.change.value} [{self.world}]: {self.before} -> {self.now}\n    {self.sql}"


def key_of(world: str, sql: str) -> str:
    """The key of a statement."""
    return short([world, sql]) + short([sql])[:4]


def read_record(path: Path = RECORD) -> dict[str, Line]:
    """The lines of a record by their keys."""
    lines = (Line(*row.split("\t")) for row in path.read_text("utf-8").splitlines())
    return {line.key: line for line in lines}


def write_record(names: Collection[str] = (), path: Path = RECORD) -> Counter[str]:
    """Write all lines anew; return what is counted.

    A line stays as it is where the verdict does, but in the worlds that are named.
    """
    known = read_record(path) if path.exists() else {}
    lines = []
    for world in worlds():
        with opened(world) as connections:
            for sql in world.asked:
                line = known.get(key_of(world.name, sql))
                now = judged(connections, sql)
                kept = line is not None and line.verdict == now and world.name not in names
                lines.append(line if line and kept else _line(world, connections, sql, now))
        print(f"{world.name}: {len(world.asked)}", file=sys.stderr, flush=True)
    text = "".join("\t".join(astuple(line)) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return counted(lines)


def counted(lines: Collection[Line]) -> Counter[str]:
    """Lines by what is known of them."""
    found = Counter("accepted" if line.is_accepted else "refused" for line in lines)
    found["answered"] = sum(line.answer != UNKNOWN for line in lines)
    found["equal to DuckDB's"] = sum(line.beside == EQUAL for line in lines)
    return found


class opened:  # noqa: N801
    """A world in a folder of its own, without noise, where cells themselves are measured."""

    def __init__(self, world: GateWorld) -> None:
        self.world = world
        self.folder = TemporaryDirectory()
        self.tables = world.opened(Path(self.folder.name))
        self.noise = zero_noise()

    def __enter__(self) -> World:
        found = self.tables.__enter__()
        found[0].set("mechanism", "identity")
        self.noise.__enter__()
        return found

    def __exit__(self, *error: object) -> None:
        self.noise.__exit__(None, None, None)
        self.tables.__exit__(None, None, None)
        self.folder.cleanup()


def judged(world: World, sql: str) -> str:
    """The verdict on a statement."""
    found = verdict(world[0], sql)
    if isinstance(found, Compiled):
        return digest(found)
    return OWN if found is None else refused(found)


def _line(world: GateWorld, connections: World, sql: str, now: str) -> Line:
    line = Line(key_of(world.name, sql), now)
    if not line.is_accepted or line.verdict == OWN:
        return line
    try:
        answer, errors, beside = answered(connections, sql, world.exact.get(sql))
    except (TooSlow, dpsql.Error):
        return line
    return Line(line.key, line.verdict, beside, errors, answer)


def differences(
    record: Mapping[str, Line], every: int = 1, names: Collection[str] = (), seed: int = 0
) -> Iterator[Difference]:
    """Compile statements, one in ``every``, and say which are not as they are recorded.

    The answers of those whose digest is another one are asked for. A world of few statements is
    asked all of them or none, since to open one takes as long as they do.
    """
    draw = random.Random(f"gate {seed}")
    for world in worlds():
        apart = len(world.asked) > FEW
        together = draw.random() * every < 1
        drawn = [draw.random() * every < 1 if apart else together for _ in world.asked]
        chosen = list(itertools.compress(world.asked, drawn))
        if not chosen or (names and world.name not in names):
            continue
        with opened(world) as connections:
            for sql in chosen:
                line = record.get(key_of(world.name, sql))
                now = judged(connections, sql)
                if line is None:
                    yield Difference(Change.NEW, world.name, sql, "nothing", now)
                elif line.verdict != now:
                    yield _difference(world, connections, sql, line, now)


def _difference(world: GateWorld, connections: World, sql: str, line: Line, now: str) -> Difference:
    """Say in which way a verdict is another one."""
    refused_now = now.startswith("E_")
    if refused_now or not line.is_accepted:
        change = Change.REFUSED if refused_now else Change.GAINED
        change = Change.LOST if refused_now and line.is_accepted else change
        return Difference(change, world.name, sql, line.verdict, now)
    same = line.verdict.rsplit(".", 1)[0] == now.rsplit(".", 1)[0]
    change = Change.SHOWN if same else Change.MOVED
    if line.answer != UNKNOWN:
        try:
            answer, errors, beside = answered(connections, sql, world.exact.get(sql))
        except (TooSlow, dpsql.Error) as error:
            return Difference(Change.LOST, world.name, sql, line.answer, str(error))
        if not alike(line.answer, answer) or (line.beside == EQUAL and beside != EQUAL):
            return Difference(Change.OTHER, world.name, sql, line.answer, answer)
        if is_worse(line.forecast, errors):
            return Difference(Change.WORSE, world.name, sql, line.forecast, errors)
    return Difference(change, world.name, sql, line.verdict, now)
