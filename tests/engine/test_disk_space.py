"""What is charged has room on the disk: a full one refuses before the charge, not after it."""

from __future__ import annotations

import random
import shutil
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

import dpsql
from dpsql.answer.codec import Release, encode, most_bytes
from dpsql.answer.store import StoreTable
from dpsql.dbapi.connection import Connection
from dpsql.engine.disk_space import FEW, JOURNALS, PLENTY, STEP, refuse_full

KEYS = ("sex", "race", "education", "age", "income", "age // 7", "race = 'White'", "hours_per_week")
SUMS = ("COUNT(*)", "SUM(age)", "AVG(hours_per_week)", "VAR_POP(age)", "MEDIAN(age)")
FORMS = (
    "SELECT {items} FROM adult GROUP BY {keys}",
    "SELECT {items} FROM adult GROUP BY CUBE({keys})",
)
NOISE = (("laplace", "0"), ("gaussian", "1e-9"))
Usage = namedtuple("Usage", "total used free")


@contextmanager
def free(size: int) -> Iterator[None]:
    """A disk with so many free bytes."""
    with mock.patch.object(shutil, "disk_usage", return_value=Usage(PLENTY, PLENTY - size, size)):
        yield


@contextmanager
def watched() -> Iterator[list[Release]]:
    """What is stored meanwhile."""
    seen: list[Release] = []
    add = StoreTable.add

    def noted(self: StoreTable[Release], key: str, thing: Release) -> Release:
        seen.append(thing)
        return add(self, key, thing)

    with mock.patch.object(StoreTable, "add", noted):
        yield seen


def statement(rng: random.Random) -> str:
    """A table of some columns, of any size."""
    keys = rng.sample(KEYS, rng.randint(1, 3))
    items = [f"{key} AS k{i}" for i, key in enumerate(keys)] + rng.sample(SUMS, rng.randint(1, 2))
    return rng.choice(FORMS).format(items=", ".join(items), keys=", ".join(keys))


@pytest.mark.parametrize("seed", range(12))
def test_a_release_takes_no_more_than_was_said(adult: Connection, seed: int) -> None:
    """Of any plan, with any noise: what is looked for on the disk is public, and enough."""
    rng = random.Random(seed)
    adult.set("reuse", "never")
    noise, delta = rng.choice(NOISE)
    for name, text in (
        ("noise", noise),
        ("delta", delta),
        ("mechanism", rng.choice(["identity", "auto"])),
    ):
        adult.set(name, text)
    adult.set("epsilon", rng.choice(["0.00001", "0.01", "1"]))
    with watched() as seen:
        adult.execute(statement(rng))
    (release,) = seen
    assert len(encode(release)) <= most_bytes(release.plan)


def test_a_full_disk_charges_nothing_and_room_is_enough(adult: Connection) -> None:
    sql = "SELECT age, race, COUNT(*) FROM adult GROUP BY age, race"
    with watched() as seen:
        adult.execute(sql)
    needed = FEW
    assert most_bytes(seen[0].plan) + JOURNALS < needed
    adult.set("fresh", "on")
    for size in (0, needed // 2, needed - 1):
        with free(size), pytest.raises(dpsql.OperationalError) as caught:
            adult.execute(sql)
        assert caught.value.code == "E_LEDGER_IO"
        assert "nothing was charged" in str(caught.value)
        assert f"{size:,}" not in str(caught.value) or not size
    assert adult.budget.entries == 1
    with free(needed):
        adult.execute(sql)
    assert adult.budget.entries == 2


def test_what_is_free_is_compared_with_few_numbers(tmp_path: Path) -> None:
    """The data lie on the disk too: a statement that asks for any number would find their size."""

    def verdicts(size: int) -> list[bool]:
        found = []
        with free(size):
            for most in range(1, PLENTY, PLENTY // 97):
                try:
                    refuse_full(tmp_path / "c.toml", most)
                    found.append(True)
                except dpsql.OperationalError:
                    found.append(False)
        return found

    different = {tuple(verdicts(size)) for size in range(0, PLENTY, PLENTY // 29)}
    assert 2 <= len(different) <= 6


def test_what_is_free_needs_no_room(adult: Connection) -> None:
    sql = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"
    before = adult.execute(sql).fetchall()
    with free(0):
        assert adult.execute(sql).fetchall() == before


def test_models_and_keys_have_room_of_a_fixed_size(adult: Connection) -> None:
    sql = "CREATE SYNTHETIC TABLE copy FROM adult OPTIONS (epsilon = 1)"
    sql += " FOR (SELECT sex, race, COUNT(*) FROM adult GROUP BY CUBE (sex, race))"
    with (
        free(FEW * STEP - 1),
        pytest.raises(dpsql.OperationalError, match="nothing was charged"),
    ):
        adult.execute(sql)
    assert adult.budget.entries == 0
