"""Many processes and threads want the last of a budget at once: exactly one gets it."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dpsql

AGE = "SELECT COUNT(*) FROM adult WHERE age = 20 + {}"
SCRIPT = Path(__file__).with_name("contend.py")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


@pytest.fixture
def tight(demo: Path) -> Path:
    """The Adult catalog with a total epsilon of 1 and a ledger."""
    path = demo / "adult.toml"
    path.write_text(path.read_text().replace("epsilon = 100.0", "epsilon = 1.0"))
    dpsql.connect(path).close()
    return path


def contend(catalog: Path, processes: int, threads: int, epsilon: str, sql: str) -> list[Any]:
    """Let all of them ask, and return what each of them reports."""
    arguments = [str(catalog), str(processes), str(threads), epsilon, sql]
    paths = os.pathsep.join([str(SCRIPT.parents[2]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        check=True,
        timeout=180,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_last_of_a_budget_is_granted_once(tight: Path) -> None:
    found = contend(tight, 3, 2, "1", AGE)
    outcomes = collections.Counter(report["outcome"] for report in found)
    assert outcomes == {"paid": 1, "refused": 5}
    assert {report.get("remaining") for report in found} == {None, "0"}
    with dpsql.connect(tight) as connection:
        assert connection.budget.entries == 1
        assert connection.budget.remaining_epsilon == 0


def test_grants_add_up_to_the_budget(tight: Path) -> None:
    found = contend(tight, 3, 3, "0.2", AGE)
    outcomes = collections.Counter(report["outcome"] for report in found)
    assert outcomes == {"paid": 5, "refused": 4}
    with dpsql.connect(tight) as connection:
        assert connection.budget.remaining_epsilon == 0
        released = [entry for entry in connection.entries() if entry.kind == "debit"]
        assert [entry.state for entry in released] == ["released"] * 5


def test_one_question_from_many_is_never_answered_unpaid(tight: Path) -> None:
    found = contend(tight, 3, 2, "1", "SELECT sex, COUNT(*) FROM adult GROUP BY sex")
    outcomes = collections.Counter(report["outcome"] for report in found)
    assert outcomes["paid"] == 1
    assert outcomes["free"] + outcomes["refused"] == 5
    answers = {json.dumps(report["rows"]) for report in found if "rows" in report}
    assert len(answers) == 1
