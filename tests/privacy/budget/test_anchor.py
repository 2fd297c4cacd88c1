"""An anchor is overwritten in place: whatever a crash leaves of it, a record of it is whole."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy.budget import anchor
from dpsql.privacy.budget.anchor import BLOCK, Anchor, read_anchor

LEDGERS = [Path("/data/adult.ledger"), Path("/" + "/".join(["longer" * 20] * 6) + "/a.ledger")]


def made(seq: int) -> Anchor:
    return Anchor("ledger-1", seq, f"{seq * 7919:064x}")


@pytest.mark.parametrize("ledger", LEDGERS)
def test_the_last_one_written_is_read(tmp_path: Path, ledger: Path) -> None:
    path = tmp_path / "a.anchor"
    assert read_anchor(path) is None
    for seq in (0, 1, 2, 3, 9, 10, 100, 10**12):
        made(seq).write(path, ledger)
        assert read_anchor(path) == made(seq)
        assert path.stat().st_size % (2 * BLOCK) == 0


def test_only_the_first_is_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.anchor"
    made(1).write(path, LEDGERS[0])
    monkeypatch.setattr(anchor, "replace_file", None)
    place = path.stat().st_ino
    for seq in range(2, 9):
        made(seq).write(path, LEDGERS[0])
    assert path.stat().st_ino == place
    assert sorted(json.loads(line)["seq"] for line in path.read_text().splitlines()) == [7, 8]


@pytest.mark.parametrize("ledger", LEDGERS)
def test_a_crash_at_any_byte_leaves_the_one_before_or_the_new_one(
    tmp_path: Path, ledger: Path
) -> None:
    """Of what is overwritten the disk has any bytes, again and again."""
    generator = random.Random(11)
    path = tmp_path / "a.anchor"
    made(1).write(path, ledger)
    last = 1
    for seq in range(2, 300):
        before = path.read_bytes()
        made(seq).write(path, ledger)
        after = path.read_bytes()
        changed = [place for place in range(len(after)) if before[place] != after[place]]
        torn = bytearray(before)
        if seq % 3 == 0:  # any of them
            kept = generator.sample(changed, generator.randint(0, len(changed)))
        else:  # the first or the last of them
            cut = generator.randint(0, len(changed))
            kept = changed[:cut] if seq % 3 == 1 else changed[cut:]
        for place in kept:
            torn[place] = after[place]
        path.write_bytes(bytes(torn))
        known = read_anchor(path)
        assert known in [made(seq)] + [made(last)] * (bytes(torn) != after)
        last = known.seq


@pytest.mark.parametrize("size", [90, 2 * BLOCK, 4 * BLOCK])
def test_one_line_of_before_is_read_and_replaced(tmp_path: Path, size: int) -> None:
    """Whatever its length is, that of two records too."""
    path = tmp_path / "a.anchor"
    facts = {"hash": "ab", "ledger": "", "ledger_id": "ledger-1", "seq": 4}
    facts["ledger"] = "x" * (size - 1 - len(json.dumps(facts)))
    path.write_text(json.dumps(facts) + "\n")
    assert path.stat().st_size == size
    assert read_anchor(path) == Anchor("ledger-1", 4, "ab")
    made(5).write(path, LEDGERS[0])
    assert read_anchor(path) == made(5)
    assert path.stat().st_size == 2 * BLOCK


def test_a_ledger_in_another_place_gets_records_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.anchor"
    for seq, ledger in enumerate([*LEDGERS, *LEDGERS]):
        made(seq).write(path, ledger)
        assert read_anchor(path) == made(seq)


def test_a_record_that_was_changed_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.anchor"
    made(1).write(path, LEDGERS[0])
    made(2).write(path, LEDGERS[0])
    content = path.read_text()
    path.write_text(content.replace('"seq": 2', '"seq": 3'))
    assert read_anchor(path) == made(1)
    path.write_text(content.replace('"seq": ', '"seq":9'))
    with pytest.raises(LedgerError, match="anchor cannot be read"):
        read_anchor(path)
