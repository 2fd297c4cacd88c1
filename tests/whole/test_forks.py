"""Forks while threads are in the middle of something: children work, or are refused, at once."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from tests.support.effort import effort

HOME = Path(dpsql.__file__).parent
ASKED = "{'asked': 1}"
OWN = {
    "dbapi/connection.py": "refuses a child before it takes its turn",
    "dbapi/site.py": "a server does not fork",
    "dbapi/repetitions.py": "a server does not fork",
    "forks.py": "makes the locks of others new",
    "privacy/noise/entropy.py": "refuses a child",
    "interrupts.py": "of work under way, which a child does not go on with",
    "privacy/doors/privacy_filter.py": "refuses a child",
    "privacy/vault/codes/prefetch.py": "of a read, which a child does not go on with",
    "privacy/vault/open_tables.py": "of a connection, which refuses a child",
    "privacy/vault/exclusive_work.py": "of a connection, which refuses a child",
    "privacy/vault/vault.py": "of a connection, which refuses a child",
}
"""Modules with locks that are not new in a child, and why."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def told(folder: Path, peril: str, fault: str = "") -> str:
    command = [sys.executable, "-m", "tests.support.forked", str(folder), peril, fault]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_children_of_a_parent_whose_threads_ask_connect_and_ask(tmp_path: Path) -> None:
    assert told(tmp_path, "stress") == f"{{'asked': {effort(4)}, 'asks on': True}}"


@pytest.mark.parametrize(
    "peril",
    [
        *("locks", "stores", "attribute", "imports"),
        *("imports and completes", "finds", "opens meanwhile"),
    ],
)
def test_what_a_thread_is_in_the_middle_of_holds_no_child_up(tmp_path: Path, peril: str) -> None:
    assert told(tmp_path, peril) == ASKED


def test_a_child_of_a_parent_that_stores_for_long_is_refused(tmp_path: Path) -> None:
    assert told(tmp_path, "stores long") == "{'E_FORK': 1}"


def test_children_end_without_ending_what_their_parent_opened(tmp_path: Path) -> None:
    assert told(tmp_path, "ends") == "{'E_FORK': 2, '0': 1, 'asked': 1}"


@pytest.mark.parametrize(
    ("peril", "fault", "found"),
    [
        ("locks", "locks", "hangs"),
        ("stores", "awaited", "hangs"),
        pytest.param(
            *("attribute", "attribute", "hangs"),
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="it has no lock there"),
        ),
        ("imports", "imports", "hangs"),
        ("ends", "ends", "ended by"),
    ],
)
def test_a_precaution_that_is_left_out_is_found(
    tmp_path: Path, peril: str, fault: str, found: str
) -> None:
    assert found in told(tmp_path, peril, fault)


def _calls(path: Path) -> Iterator[tuple[str, bool]]:
    """What a module calls by a dotted name, and whether a lock made there is new in a child."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    renewed = {
        id(a) for call in calls if ast.unparse(call.func) in ("fresh", "awaited") for a in call.args
    }
    for call in calls:
        yield ast.unparse(call.func), id(call) in renewed


def _places(names: set[str]) -> set[str]:
    last = {name.rpartition(".")[2] for name in names}
    asked = [p for p in HOME.rglob("*.py") if any(n in p.read_text("utf-8") for n in last)]
    return {
        str(path.relative_to(HOME))
        for path in asked
        for name, is_renewed in _calls(path)
        if name in names and not is_renewed
    }


def test_locks_are_new_in_a_child() -> None:
    locks = {"Lock", "RLock", "Condition", "Semaphore"}
    found = _places(locks | {f"threading.{name}" for name in locks})
    assert {each for each in found if not each.startswith("server/")} == set(OWN)


def test_sqlite_and_duckdb_are_opened_in_few_places() -> None:
    kept = {"answer/store.py", "privacy/budget/ledger_file.py"}
    read_and_closed = {"files.py", "privacy/vault/formats/sqlite_files.py"}
    assert _places({"sqlite3.connect"}) == kept | read_and_closed
    assert _places({"duckdb.connect"}) == {"sealed.py"}


def test_no_attribute_has_a_lock() -> None:
    users = [p for p in HOME.rglob("*.py") if "cached_property" in p.read_text(encoding="utf-8")]
    texts = {p: p.read_text(encoding="utf-8") for p in users if p.name != "records.py"}
    assert len(texts) > 20
    assert not [p for p, text in texts.items() if re.search(r"functools.*cached_property", text)]
