"""Texts as bytes: one number for the same texts, another for others, and digests of many."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pytest

from dpsql.privacy.vault.codes import digests, row_texts, text_dictionary
from dpsql.privacy.vault.codes.byte_texts import LONG, ByteTexts
from dpsql.privacy.vault.codes.digests import first_digits
from dpsql.privacy.vault.codes.row_texts import write_rows
from dpsql.privacy.vault.codes.spill import SpillRoom
from dpsql.privacy.vault.codes.text_dictionary import TextNames
from dpsql.privacy.vault.unit import unit_numbers
from dpsql.privacy.vault.unit.unit_numbers import Digest, UnitNumbers

PARTS = ["", "a", "b", "\0", "é", "\U0001f600", "\udc80", "12345678", "x" * 9, "y" * LONG]


def draw(seed: int, count: int) -> list[str]:
    chosen = random.Random(seed)
    return ["".join(chosen.choices(PARTS, k=chosen.randrange(4))) for _ in range(count)]


def test_texts_are_told_apart_byte_by_byte() -> None:
    listed = draw(1, 3000)
    found = ByteTexts.of(listed)
    parts = [each.encode("utf-8", "surrogatepass") for each in listed]
    some = np.random.default_rng(0).permutation(3000)
    assert [*found.take(some).each()] == [parts[each] for each in some]
    assert [found.bytes_of(each) for each in some] == [parts[each] for each in some]
    words = [bytearray() for _ in parts]
    for rows, column in found.words():
        for row, word in zip(rows.tolist(), column.tolist(), strict=True):
            words[row] += word.to_bytes(8, "little")
    for part, word in zip(parts, words, strict=True):
        expected = b"" if len(part) >= LONG else part.ljust(-(-len(part) // 8) * 8, b"\0")
        assert word == expected


def number(listed: list[str], batch: int) -> tuple[list[int], list[str]]:
    names, found = TextNames(), []
    for start in range(0, len(listed), batch):
        found += names.add(ByteTexts.of(listed[start : start + batch])).tolist()
    return found, names.names().tolist()


def in_order_of_first(listed: list[str]) -> tuple[list[int], list[str]]:
    texts = ByteTexts.of(listed).tolist()
    known = {each: number for number, each in enumerate(dict.fromkeys(texts))}
    return [known[each] for each in texts], [*known]


@pytest.mark.parametrize("batch", [1, 7, 400, 3000])
def test_equal_texts_have_one_number_and_others_another(batch: int) -> None:
    listed = draw(5, min(3000, 600 * batch))
    numbers, names = number(listed, batch)
    assert len(names) == len({*names})
    assert [names[each] for each in numbers] == ByteTexts.of(listed).tolist()
    assert sorted(names) == sorted(in_order_of_first(listed)[1])


@pytest.mark.parametrize("place", [0, 1])
def test_texts_of_one_place_are_told_apart(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextNames, "_places", lambda _, each: np.full(len(each), place, np.int64))
    listed = [f"{i % 550}" for i in range(900)] + draw(6, 60)
    numbers, names = number(listed, 100)  # more than the table has places for at first
    assert len(names) == len({*names})
    assert [names[each] for each in numbers] == ByteTexts.of(listed).tolist()


def test_texts_keep_their_numbers_when_the_table_grows() -> None:
    listed = [f"person {i * 7919 % 1500}" for i in range(2500)] + ["y" * LONG, "z" * LONG] * 3
    numbers, names = number(listed, 1)[0], number(listed, 640)[1]
    assert numbers == in_order_of_first(listed)[0]
    assert sorted(names) == sorted({*listed})


def test_records_have_a_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_dictionary, "LAST", 40)
    names = TextNames()
    names.add(ByteTexts.of(["a", "b" * 100]))
    with pytest.raises(MemoryError):
        names.add(ByteTexts.of([f"{i}" for i in range(20)]))


@pytest.mark.parametrize("spilled", [False, True])
def test_units_of_texts_are_numbered_over_batches(spilled: bool, tmp_path: object) -> None:
    listed = draw(2, 2000)
    units = UnitNumbers(SpillRoom(str(tmp_path) if spilled else None))
    for start in range(0, 2000, 300):
        some = np.array([*listed[start : start + 300], None], dtype=object)
        units.add(some, np.append(np.arange(len(some) - 1) % 7 > 0, True))
    unit_numbers = units.owners()
    kept = [i for i in range(2007) if unit_numbers.owned[i]]
    texts_of = [each for i, each in enumerate(listed) if i % 300 % 7]
    names = unit_numbers.names.tolist()
    assert [names[unit_numbers.units[i]] for i in kept] == [
        each.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
        for each in texts_of
    ]


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("spread", [1, 1 << 40])
def test_units_of_whole_numbers_are_numbered(
    spilled: bool, spread: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_numbers, "BATCH", 70)
    rng, limits = np.random.default_rng(8), np.iinfo(np.int64)
    values = rng.integers(-90, 90, 1000) * spread
    if spread > 1:
        values[[3, 500, 999]] = limits.min, limits.max, limits.min
    for count in (0, 1, 1000):
        units = UnitNumbers(SpillRoom(str(tmp_path) if spilled else None))
        units.add(values[:count], np.arange(count) % 7 > 0)
        found = units.owners()
        assert (found.units.dtype.name, found.names.dtype.name) == ("uint32", "int64")
        assert len(found.names) == len({*found.names.tolist()})
        owned = found.owned.nonzero()[0]
        names = np.array(found.names.tolist())
        assert names[found.units[owned]].tolist() == values[owned].tolist()


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


def rows_of_numbers(seed: int, rows: int) -> list[np.ndarray[Any, Any]]:
    """Columns of small, long, negative and extreme numbers, of many types."""
    rng = np.random.default_rng(seed)
    extremes = np.iinfo(np.int64)
    content = [rng.integers(-2, 1 << size, rows) for size in (1, 14, 24, 62)]
    content += [rng.integers(0, 200, rows).astype(np.uint8) for _ in range(3)]
    content += [rng.integers(0, 9, rows).astype(np.uint8) for _ in range(5)]
    content += [rng.integers(9_990, 10_010, rows).astype(np.uint16), np.zeros(rows, np.uint32)]
    content += [rng.integers(0, 10_000, rows).astype(np.uint16), rng.integers(-9_999, 1, rows)]
    content.append(rng.integers(extremes.min, extremes.max, rows, endpoint=True))
    content.append(rng.choice([extremes.min, extremes.max, -1, 0, 9_999, 10**8, -(10**12)], rows))
    content.append(rng.choice(np.array([0, 1, 10**16, (1 << 64) - 1], dtype=np.uint64), rows))
    chosen = rng.permutation(len(content))[: rng.integers(1, len(content) + 1)]
    return [content[each] for each in chosen]


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_written_as_python_writes_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_texts, "ROWS", 150)
    rng, rows = np.random.default_rng(seed), 400
    content = rows_of_numbers(seed, rows)
    keys = rng.integers(0, (1 << 64) - 1, rows, dtype=np.uint64, endpoint=True)
    prefix = rng.bytes(seed)
    found: list[bytes] = []
    for each in write_rows(prefix, keys, content):
        words = [np.full(len(each.sizes), word, np.uint64) for word in each.shared]
        texts = np.stack([*words, *each.words], axis=1).astype("<u8")
        found += [
            text.tobytes()[:size] for text, size in zip(texts, each.sizes.tolist(), strict=True)
        ]
        assert all(
            not any(text.tobytes()[size:])
            for text, size in zip(texts, each.sizes.tolist(), strict=True)
        )
    lists = [each.tolist() for each in (keys, *content)]
    assert found == [
        prefix + "|".join([f"{key:016x}", *map(str, of)]).encode()
        for key, *of in zip(*lists, strict=True)
    ]


@pytest.mark.parametrize("salt", ["", "salt", "0123456789abcdef" * 2, "a" * 39, "b" * 64])
def test_rows_have_one_digest_whichever_way_it_is_worked_out(salt: str) -> None:
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 1 << 63, 3000).astype(np.uint64) * np.uint64(2)
    keys[0] = 1
    for seed in range(3):
        content = rows_of_numbers(seed, len(keys))
        rows = zip(*(each.tolist() for each in (keys, *content)), strict=True)
        texts = ["|".join([salt, f"{key:016x}", *map(str, of)]) for key, *of in rows]
        expected = [hashlib.md5(text.encode()).digest()[:8] for text in texts]
        for count in (0, 1, 600, len(keys)):
            found = Digest(salt).of_rows(keys[:count], [each[:count] for each in content])
            assert [each.to_bytes(8) for each in found.tolist()] == expected[:count]
