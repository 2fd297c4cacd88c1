"""Texts as bytes: the same numbers for the same texts, and never one number for two."""

from __future__ import annotations

import hashlib
import random
from unittest import mock

import numpy as np
import pytest

from dpsql.privacy.vault import byte_texts, digests
from dpsql.privacy.vault.byte_texts import LONG, ByteTexts, TextNumbers
from dpsql.privacy.vault.digests import first_digits
from dpsql.privacy.vault.owners import FEW, Digest, UnitNumbers
from dpsql.privacy.vault.pile import PileRoom

PARTS = ["", "a", "b", "\0", "é", "\U0001f600", "\udc80", "12345678", "x" * 9, "y" * LONG]


def draw(seed: int, count: int) -> list[str]:
    chosen = random.Random(seed)
    return ["".join(chosen.choices(PARTS, k=chosen.randrange(4))) for _ in range(count)]


def test_texts_are_told_apart_byte_by_byte() -> None:
    listed = draw(1, 3000)
    found = ByteTexts.of(listed)
    numbers = TextNumbers().number(found).tolist()
    assert len({*numbers}) == len({*listed}) == len({*zip(listed, numbers, strict=True)})
    some = np.random.default_rng(0).permutation(3000)
    parts = [each.encode("utf-8", "surrogatepass") for each in listed]
    assert [*found.take(some).each()] == [parts[each] for each in some]
    assert found.take(some).packed().tobytes() == b"".join(parts[each] for each in some)
    assert found.take(some).same(ByteTexts.of([listed[each] for each in some]))
    other = [*listed]
    other[-1] = f"{other[-1]}\0"
    assert not found.same(ByteTexts.of(other))
    other[-1] = "\0" * len(parts[-1])
    assert not found.same(ByteTexts.of(other)) or parts[-1] == other[-1].encode()


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


def test_names_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_texts, "MANY", 5)
    listed = draw(3, 500)
    units = UnitNumbers(PileRoom())
    for start in range(0, 500, 7):
        some = ByteTexts.of(listed[start : start + 7])
        units.add(some, np.ones(len(some), dtype=bool))
    owners = units.owners()
    assert len(owners.names) == len({*listed})
    assert [owners.listed[each] for each in owners.units] == ByteTexts.of(listed).tolist()


def test_two_texts_of_one_number_are_an_error() -> None:
    with mock.patch.object(byte_texts.TextNumbers, "number", lambda _, each: each.sizes):
        units = UnitNumbers(PileRoom())
        with pytest.raises(ValueError, match="one number"):
            units.add(ByteTexts.of(["a", "b"]), np.ones(2, dtype=bool))
        units.add(ByteTexts.of(["b", "cc"]), np.ones(2, dtype=bool))
        units.add(ByteTexts.of(["c", "cc"]), np.ones(2, dtype=bool))
        with pytest.raises(ValueError, match="one number"):
            units.owners()


@pytest.mark.parametrize("few", [0, digests.FEW])
def test_digests_of_many_texts_are_those_of_one_by_one(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "FEW", few)
    chosen = random.Random(4)
    sizes = [*range(140), 447, 448, 449, 2000]
    listed = ["".join(chosen.choices("0|9\x00é", k=size)) for size in sizes]
    for size in (0, 1, 8, 33, 55, 56, 63, 64, 130):
        prefix = bytes(chosen.choices(range(256), k=size))
        found = first_digits(prefix, ByteTexts.of(listed).take(np.arange(len(sizes))[::-1]))
        expected = [hashlib.md5(prefix + each.encode()).digest()[:8] for each in listed]
        assert [each.to_bytes(8) for each in found.tolist()[::-1]] == expected


def test_rows_have_one_digest_whichever_way_it_is_worked_out() -> None:
    draw = np.random.default_rng(5)
    keys = draw.integers(0, 1 << 63, FEW + 100).astype(np.uint64) * np.uint64(2)
    keys[0] = 1
    content = [draw.integers(-2, 1 << size, len(keys)) for size in (1, 24, 62)]
    content.append(draw.integers(0, 200, len(keys)).astype(np.uint8))
    few = Digest("salt").of_rows(keys[:FEW], [each[:FEW] for each in content])
    np.testing.assert_array_equal(Digest("salt").of_rows(keys, content)[:FEW], few)
