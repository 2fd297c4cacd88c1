"""Texts as bytes: the same numbers for the same texts, and never one number for two."""

from __future__ import annotations

import random
from unittest import mock

import numpy as np
import pytest

from dpsql.privacy.vault import texts
from dpsql.privacy.vault.owners import UnitNumbers
from dpsql.privacy.vault.pile import PileRoom
from dpsql.privacy.vault.texts import LONG, TextNumbers, Texts

PARTS = ["", "a", "b", "\0", "é", "\U0001f600", "\udc80", "12345678", "x" * 9, "y" * LONG]


def draw(seed: int, count: int) -> list[str]:
    chosen = random.Random(seed)
    return ["".join(chosen.choices(PARTS, k=chosen.randrange(4))) for _ in range(count)]


def test_texts_are_told_apart_byte_by_byte() -> None:
    listed = draw(1, 3000)
    found = Texts.of(listed)
    numbers = TextNumbers().number(found).tolist()
    assert len({*numbers}) == len({*listed}) == len({*zip(listed, numbers, strict=True)})
    some = np.random.default_rng(0).permutation(3000)
    parts = [each.encode("utf-8", "surrogatepass") for each in listed]
    assert [*found.take(some).each()] == [parts[each] for each in some]
    assert found.take(some).packed().tobytes() == b"".join(parts[each] for each in some)
    assert found.take(some).same(Texts.of([listed[each] for each in some]))
    other = [*listed]
    other[-1] = f"{other[-1]}\0"
    assert not found.same(Texts.of(other))
    other[-1] = "\0" * len(parts[-1])
    assert not found.same(Texts.of(other)) or parts[-1] == other[-1].encode()


@pytest.mark.parametrize("spilled", [False, True])
def test_units_of_texts_are_numbered_over_batches(spilled: bool, tmp_path: object) -> None:
    listed = draw(2, 2000)
    units = UnitNumbers(PileRoom(str(tmp_path) if spilled else None))
    for start in range(0, 2000, 300):
        some = np.array([*listed[start : start + 300], None], dtype=object)
        units.add(some, np.append(np.arange(len(some) - 1) % 7 > 0, True))
    owners = units.owners()
    kept = [i for i in range(2007) if owners.owned[i]]
    texts_of = [each for i, each in enumerate(listed) if i % 300 % 7]
    assert [owners.listed[owners.units[i]] for i in kept] == [
        each.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
        for each in texts_of
    ]


def test_two_texts_of_one_number_are_an_error() -> None:
    with mock.patch.object(texts.TextNumbers, "number", lambda _, each: each.sizes):
        units = UnitNumbers(PileRoom())
        with pytest.raises(ValueError, match="one number"):
            units.add(Texts.of(["a", "b"]), np.ones(2, dtype=bool))
        units.add(Texts.of(["b", "cc"]), np.ones(2, dtype=bool))
        units.add(Texts.of(["c", "cc"]), np.ones(2, dtype=bool))
        with pytest.raises(ValueError, match="one number"):
            units.owners()
