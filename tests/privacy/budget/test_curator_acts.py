"""A curator's first hours, as sequences of acts: no dead end, and dry runs say what runs would.

Catalogs are edited, copied, asked and migrated at random. After every act the verdict of a dry run
is that of the run; and whatever refuses a changed catalog names lines that make it work.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import migrate_ledger, verify_ledger
from dpsql.dbapi.scratch import connect_scratch
from dpsql.errors import Error, LedgerError
from dpsql.privacy.budget.curator_acts import open_ledger
from tests.support.effort import effort

MORE = effort(1)
SQL = "SELECT ward, COUNT(*) FROM v GROUP BY ward"


def catalog_text(facts: dict[str, str]) -> str:
    budget = f"budget = {{ epsilon = {facts['table']} }}\n" if facts["table"] else ""
    return (
        f"[budget]\nepsilon = {facts['epsilon']}\ndelta = {facts['delta']}\n"
        f'[table.v]\nsource = "v.csv"\nprivacy_unit = {facts["unit"]}\n{budget}'
        f'[table.v.column]\nward = {{ type = "text", domain = {facts["domain"]} }}\n'
    )


CHOICES = {
    "epsilon": ("1", "3", "0.4"),
    "delta": ("0", "1e-9", "1e-6"),
    "unit": ('"row"', '{ column = "pid", max_rows = 2 }'),
    "table": ("", "", "0.9", "0.2"),
    "domain": ('["a", "b"]', '["a"]'),
}
DRAFTED = {
    "epsilon": "1",
    "delta": "1e-9",
    "unit": '"row"',
    "table": "",
    "domain": '["a", "b"]',
}
"""What ``dpsql init`` drafts."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "v.csv").write_text("pid,ward\n1,a\n1,b\n2,a\n")
    return tmp_path


def verdict(work: Callable[[], Any]) -> tuple[str, str]:
    try:
        work()
    except Error as error:
        return error.code, error.message
    return "", ""


def outcome(path: Path, epsilon: float, dry: bool, noise: str = "laplace") -> tuple[str, str]:
    return verdict(lambda: asked(path, epsilon, dry, noise))


def asked(path: Path, epsilon: float, dry: bool, noise: str = "laplace") -> None:
    with dpsql.connect(path, epsilon=epsilon, noise=noise) as connection:
        connection.set("fresh", "on")
        (connection.rehearse if dry else connection.executescript)(SQL)


def write(path: Path, facts: dict[str, str]) -> None:
    path.write_text(catalog_text(facts), encoding="utf-8")


LINE = re.compile(r"(budget = \{ epsilon = [\d.]+ \}|\w+ = [\d.e-]+) in \[([\w.]+)\]")


def mended(facts: dict[str, str], hint: str) -> dict[str, str]:
    """The catalog with the lines that a refusal names."""
    found = dict(facts)
    for line, section in LINE.findall(hint):
        name, _, value = line.partition(" = ")
        if name == "budget":
            assert section == "table.v"
            found["table"] = value.split()[3]
        else:
            assert section == "budget"
            found[name] = value
    assert found != facts, hint
    return found


@pytest.mark.parametrize("seed", range(3 * MORE))
def test_dry_runs_say_what_runs_would_and_nothing_is_a_dead_end(seed: int, folder: Path) -> None:
    draw = random.Random(seed)
    state = {name: dict(DRAFTED) for name in ("v", "w")}
    for name, facts in state.items():
        write(folder / f"{name}.toml", facts)
    seen = set()
    for _ in range(12):
        name = draw.choice("vvvw")
        path, facts = folder / f"{name}.toml", state[name]
        act = draw.choice(["edit", "edit", "ask", "ask", "copy", "gauss"])
        if act == "edit":
            key = draw.choice(list(CHOICES))
            facts[key] = draw.choice(CHOICES[key])
        elif act == "copy":
            facts.update(state["w" if name == "v" else "v"])
        write(path, facts)
        epsilon = draw.choice([0.1, 0.3, 2.5])
        noise = "gaussian" if act == "gauss" else "laplace"
        dry = outcome(path, epsilon, True, noise)
        before = _spent(path)
        if act in ("ask", "gauss"):
            run = outcome(path, epsilon, False, noise)
            assert run == dry
            assert before is None or (_spent(path) == before) == bool(run[0])
        seen.add(dry[0])
        if dry[0] == "E_POLICY_CHANGED":
            state[name] = _migrated(path, facts)
        again = outcome(path, 0.001, True)
        assert again[0] in ("", "E_LEDGER_MISMATCH", "E_BUDGET"), again
    assert "" in seen


def _spent(path: Path) -> int | None:
    try:
        return verify_ledger(path).entries
    except LedgerError:
        return None


def _migrated(path: Path, facts: dict[str, str]) -> dict[str, str]:
    """Do what refusals say until the catalog is accepted."""
    for _ in range(4):
        code, hint = _refusal(lambda: dpsql.connect(path).close())
        if not code:  # it is what it was
            return facts
        refused, line = _refusal(lambda: migrate_ledger(path))
        if not refused:
            assert "before that" not in hint
            return facts
        assert (code, refused) == ("E_POLICY_CHANGED", "E_POLICY_CHANGED")
        assert line
        assert line in hint, "opening names what migrating wants"
        facts = mended(facts, line)
        write(path, facts)
    raise AssertionError("a dead end")


def _refusal(work: Callable[[], Any]) -> tuple[str, str]:
    try:
        work()
    except LedgerError as error:
        return error.code, str(error.hint or "")
    return "", ""


def test_the_first_hour_is_none(folder: Path) -> None:
    """The drafted delta, one COUNT, a better catalog: under another name, then over the old one."""
    drafted, better = folder / "v.toml", folder / "w.toml"
    write(drafted, DRAFTED)
    write(better, {**DRAFTED, "delta": "0", "epsilon": "3"})
    asked(drafted, 0.1, dry=False)
    refused = verdict(lambda: asked(better, 0.1, dry=True))
    assert refused[0] == "E_LEDGER_MISMATCH"
    assert verdict(lambda: asked(better, 0.1, dry=False)) == refused
    shutil.copy(better, drafted)
    with pytest.raises(LedgerError) as caught:
        dpsql.connect(drafted)
    assert "dpsql ledger migrate" in str(caught.value.hint)
    assert "write delta = 1e-09 in [budget]" in str(caught.value.hint)
    write(drafted, {**DRAFTED, "epsilon": "3"})
    assert migrate_ledger(drafted) is not None
    asked(drafted, 0.1, dry=False)
    assert verify_ledger(drafted).spent_epsilon == Fraction("0.2")


@pytest.mark.parametrize("seed", range(3))
def test_before_the_first_charge_a_catalog_is_free_to_change(seed: int, folder: Path) -> None:
    draw, path = random.Random(seed), folder / "v.toml"
    for _ in range(8):
        facts = {key: draw.choice(values) for key, values in CHOICES.items()}
        facts["table"] = "" if facts["table"] and facts["epsilon"] == "0.4" else facts["table"]
        write(path, facts)
        is_draft = draw.random() < 0.5
        with connect_scratch(path)[0] if is_draft else dpsql.connect(path) as connection:
            assert connection.budget.total_epsilon == Fraction(facts["epsilon"])
            assert connection.budget.total_delta == Fraction(facts["delta"])
    asked(path, 0.01, dry=False)
    status = verify_ledger(path)
    assert status.entries == 1
    write(path, {**facts, "epsilon": "7"})
    assert verdict(lambda: dpsql.connect(path))[0] == "E_POLICY_CHANGED"


def test_who_has_an_older_catalog_changes_nothing(folder: Path) -> None:
    """A process that read the file before it was edited does not put it back in force."""
    path = folder / "v.toml"
    write(path, DRAFTED)
    old = read_catalog(path)
    open_ledger(old, folder / "anchors").close()
    write(path, {**DRAFTED, "epsilon": "3"})
    new = read_catalog(path)
    open_ledger(new, folder / "anchors").close()
    with pytest.raises(LedgerError, match="is not the one this ledger was created for"):
        open_ledger(old, folder / "anchors")
    open_ledger(new, folder / "anchors").close()
