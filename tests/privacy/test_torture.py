"""Hundreds of kills at random moments: no overspending, no receipt without an entry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import BudgetExceeded
from dpsql.privacy.budget.accounting import Policy, laplace_cost
from dpsql.privacy.budget.ledger import Ledger
from tests.support.effort import effort

SECONDS = effort(4)
SCRIPT = Path(__file__).with_name("torture.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9"),
]


def run(directory: Path, seconds: float, gaps: tuple[float, float], units: int) -> dict[str, int]:
    """Torture a ledger with four workers and return what the parent counted."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(directory), str(seconds), "4", *map(str, gaps)],
        env=os.environ | {"TORTURE_UNITS": str(units)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=10 * seconds + 60,
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def noted(directory: Path) -> list[tuple[int, str]]:
    lines = [line.split() for p in directory.glob("notes-*") for line in p.read_text().splitlines()]
    return [(int(seq), head) for seq, head, _ in lines]


def opened(directory: Path, units: int) -> Ledger:
    policy = Policy(Fraction(units, 10**6), Fraction(0))
    return Ledger.open(directory / "ledger", directory / "anchors", policy, "torture")


def test_kills_lose_budget_at_most(tmp_path: Path) -> None:
    units = 10**6
    counted = run(tmp_path, SECONDS, (0.005, 0.05), units)
    assert counted["crashes"] == 0
    assert counted["kills"] > 8 * SECONDS
    ledger = opened(tmp_path, units)
    status = ledger.verify()
    entries = {entry.seq: entry for entry in ledger.entries() if entry.kind == "debit"}
    released = noted(tmp_path)
    assert len(released) > 2 * SECONDS
    assert len(set(released)) == len(released)
    assert all(entries[seq].hash == head for seq, head in released)
    assert status.entries == len(entries) >= len(released)
    assert status.spent_epsilon == Fraction(len(entries), 10**6)
    assert (
        ledger.debit(laplace_cost(ledger.policy, Fraction(1, 10**6)), "p", "v").seq
        == status.seq + 1
    )


def test_a_budget_of_150_grants_is_spent_exactly_under_kills(tmp_path: Path) -> None:
    counted = run(tmp_path, 60.0, (0.01, 0.06), 150)
    assert counted["crashes"] == 0
    assert counted["finished"] == 4
    ledger = opened(tmp_path, 150)
    status = ledger.verify()
    assert status.entries == 150
    assert status.remaining_epsilon == 0
    released = noted(tmp_path)
    assert len(set(released)) == len(released) <= 150
    with pytest.raises(BudgetExceeded):
        ledger.debit(laplace_cost(ledger.policy, Fraction(1, 10**6)), "p", "v")


def test_threads_are_granted_exactly_the_budget(tmp_path: Path) -> None:
    policy = Policy(Fraction(100, 10**6), Fraction(0))
    ledger = Ledger.create(tmp_path / "ledger", tmp_path / "anchors", policy, "threads")
    cost, granted, refused = laplace_cost(policy, Fraction(1, 10**6)), [], []

    def ask() -> None:
        for _ in range(8):
            try:
                granted.append(ledger.debit(cost, "p", "v").seq)
            except BudgetExceeded as error:
                refused.append(error.remaining)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(granted) == list(range(1, 101))
    assert refused == [Fraction(0)] * 28
    assert ledger.verify().entries == 100
