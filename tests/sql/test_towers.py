"""Nothing that is written again and again takes more work than the square of its text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.effort import first_seed, one_in
from tests.support.grammar import parser
from tests.support.towers import towers

SHARES = one_in(32)
"""Parts of the towers, of which one is tried at the highest level that is not refused for its size;
all of them, at all heights, where it is 1."""
SHARE = first_seed(0) % SHARES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by Linux")


def test_no_tower_of_the_grammar_takes_more_than_the_square_of_its_text(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.towers", str(tmp_path), str(SHARE), str(SHARES)]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    *steep, last = found.stdout.splitlines() or [""]
    assert not steep, "\n".join(steep)
    assert last.startswith("compiled "), found.stderr[-2000:]


def reached(name: str, within: dict[str, set[str]]) -> set[str]:
    found, left = set[str](), [name]
    while left:
        further = within.get(left.pop(), set()) - found
        found |= further
        left.extend(further)
    return found


def test_every_rule_that_contains_itself_has_a_tower() -> None:
    found = towers()
    kinds = {each.kind[1] for each in found if each.kind[0] == "nested"}
    assert {"add", "multiply", "or", "case", "call", "compare_tuples", "aggregate"} <= kinds
    assert any(each.kind[0] == "chained" for each in found)
    within: dict[str, set[str]] = {}
    for rule in parser().rules:
        inside = {str(each.name) for each in rule.expansion if not each.is_term}
        within.setdefault(str(rule.origin.name), set()).update(inside)
    recursive = {name for name in within if name in reached(name, within)}
    assert recursive == {each.kind[1] for each in found if each.kind[0] == "derived"}
