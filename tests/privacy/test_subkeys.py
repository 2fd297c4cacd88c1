"""A ledger's salt keys nothing itself: every use has a key of its own, derived from it by name.

Text that a server is sent stands in its log, so a secret in it is known to others. What was stored
when versions were keyed by the salt itself is found again, free.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dpsql
from dpsql.catalog.catalog import Table, Unit
from dpsql.privacy.budget.hash_chain import subkey
from dpsql.privacy.doors.vaults import Vaults
from dpsql.privacy.vault import vault
from dpsql.privacy.vault.data_engine import Counts
from dpsql.privacy.vault.dialect import Dialect
from dpsql.privacy.vault.servers.group_sql import GroupSql
from dpsql.privacy.vault.servers.registry import find_dialect
from dpsql.privacy.vault.vault import TableVault
from tests.privacy.covering import Drawn, draw_sets, draw_table

SALT = bytes(range(160, 192))
KNOWN = find_dialect(Table("t", "postgresql://t", Unit(), {}))
assert KNOWN is not None
DIALECT, FAMILY_OF = KNOWN
OPTIONS = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS"
ASKED = (
    "SELECT education, COUNT(*) AS n FROM adult GROUP BY education",
    "SELECT AVG(age) AS a FROM adult",
    f"{OPTIONS}(clip = 'svt') SUM(capital_gain) AS s FROM adult",
    f"{OPTIONS}(mechanism = 'mwem') sex, income, COUNT(*) AS n FROM adult GROUP BY sex, income",
)


class Listener:
    """A table of a server, and a session that counts it: what it is sent is kept."""

    relation = '"s"."t"'
    paths = ("postgresql://s.t",)
    kind, table, untyped = "postgresql", "t", False
    dialect: Dialect = DIALECT

    def __init__(self, drawn: Drawn, keeps: bool) -> None:
        self.types = [*drawn.postgres().items()]
        self.columns = [(name, FAMILY_OF(kind)) for name, kind in self.types]
        self.keeps = keeps
        self.sent: list[str] = []

    def open_counter(self) -> Listener:
        return self

    def fingerprint(self) -> str:
        return "one"

    def keep(self, select: str) -> str | None:
        self.sent.append(select)
        return "kept" if self.keeps else None

    def rows(self, select: str) -> Iterable[tuple[int, ...]]:
        self.sent.append(select)
        return ()

    def close(self) -> None:
        """Nothing is kept."""


def sent_of(seed: int, salt: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that a server is sent for random counts of a random table."""
    drawn = draw_table(seed)
    listener = Listener(drawn, keeps=seed % 2 == 0)
    monkeypatch.setattr(vault, "open_table", lambda table: listener)
    source = "postgresql://s.t"
    table = Table("t", source, drawn.unit, drawn.columns, options=(("read", "push"),))
    opened = TableVault(table, salt)
    for view, resolutions, units in draw_sets(seed, drawn, 3):
        opened.within(view).tally(resolutions, units)
    return listener.sent


def holds_salt(sent: list[str], salt: bytes) -> bool:
    text = "\n".join(sent)
    return any(form in text for form in (salt.hex(), salt.hex().upper(), repr(salt)[2:-1]))


def test_a_server_is_never_sent_the_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = 0
    for seed in range(40):
        sent = sent_of(seed, SALT, monkeypatch)
        assert len(sent) > 1
        assert not holds_salt(sent, SALT)
        keyed += sent != sent_of(seed, bytes(32), monkeypatch)
    assert keyed > 10  # what is sent has a key of the salt in it


def test_a_salt_that_is_sent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "subkey", lambda salt, use: salt)
    assert any(holds_salt(sent_of(seed, SALT, monkeypatch), SALT) for seed in range(40))


def test_what_a_server_is_sent_does_not_follow_from_its_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = GroupSql.fold
    for seed in range(0, 40, 2):
        sent = []
        for numbers in ((), (1,), (0, 1 << 40, 3)):

            def answered(self: GroupSql, rows: object, given: tuple[int, ...] = numbers) -> Counts:
                return known(self, [(0, *[each] * len(self.leaves)) for each in given])

            monkeypatch.setattr(GroupSql, "fold", answered)
            sent.append(sent_of(seed, SALT, monkeypatch))
        assert sent[0] == sent[1] == sent[2]


def test_every_use_has_a_key_of_its_own() -> None:
    uses = ("versions", "rows of a", "rows of b", "relations")
    keys = [subkey(salt, use) for salt in (SALT, bytes(32)) for use in uses]
    assert len({*keys, SALT, bytes(32)}) == len(keys) + 2
    assert {len(key) for key in keys} == {32}


@pytest.mark.parametrize("sql", ASKED)
def test_what_was_stored_by_the_salt_itself_is_found(demo: Path, sql: str) -> None:
    with pytest.MonkeyPatch.context() as before:
        before.setattr(Vaults, "versions", Vaults.earlier_versions)
        with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
            first = connection.execute(sql).fetchall()
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        assert connection.explain(sql).free
        assert connection.execute(sql).fetchall() == first
        assert connection.budget.entries == 1


def test_what_was_found_by_the_salt_itself_is_not_of_earlier_data(demo: Path) -> None:
    facts = {"table": "adult", "what": "DOMAIN", "name": "d", "receipt": ("", 1, "")}
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        engine = connection.engine
        now, before = engine.versions(["adult"])
        assert now != before
        for data, told in ((now, 0), (before, 0), ("another", 1)):
            found: Any = SimpleNamespace(**facts, data=data)
            assert len(engine.aged([found])) == told
