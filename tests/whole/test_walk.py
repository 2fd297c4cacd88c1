"""How far a request walks through the house: calls between modules, in a warm process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import dpsql
from dpsql.dbapi.connection import Connection

HOME = str(Path(dpsql.__file__).parent)
MOST = 830
"""It was 1,302 when it was first counted; the figure of today is printed (``pytest -s``).

It varies by some 20 with the noise that is drawn.
"""


@dataclass
class Walk:
    """Modules of dpsql in the order in which they are entered and returned to."""

    calls: int = 0
    changes: int = 0
    rooms: set[str] = field(default_factory=set)
    last: str = ""

    def step(self, frame: FrameType, event: str, _: object) -> None:
        place = frame.f_code.co_filename
        if event in ("call", "return") and place.startswith(HOME):
            self.calls += event == "call"
            self.changes += place != self.last
            self.rooms.add(place)
            self.last = place


@contextmanager
def walked() -> Iterator[Walk]:
    walk, before = Walk(), sys.getprofile()
    sys.setprofile(walk.step)
    try:
        yield walk
    finally:
        sys.setprofile(before)


def test_a_plain_group_by_walks_no_further_than_it_did(adult: Connection) -> None:
    for sql in (
        "SELECT race, COUNT(*) FROM adult GROUP BY race",
        "SELECT sex, COUNT(*) FROM adult WHERE age > 30 GROUP BY sex",
    ):
        adult.execute(sql).fetchall()
    with walked() as walk:
        adult.execute("SELECT sex, COUNT(*) FROM adult GROUP BY sex").fetchall()
    print(
        f"\n{walk.calls} calls in {len(walk.rooms)} modules, "
        f"{walk.changes} changes of module over calls and returns"
    )
    assert 100 < walk.changes <= MOST
