"""The map names what is there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import ablation
from tests.support import effort

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "docs" / "architecture.md").read_text()


def test_every_room_is_on_the_map() -> None:
    rooms = {path.name for path in (ROOT / "dpsql").iterdir() if (path / "__init__.py").exists()}
    assert {room for room in rooms if f"| `{room}/` |" not in MAP} == set()


def test_every_path_on_the_map_exists() -> None:
    found: set[str] = set()
    for line in MAP.splitlines():
        folder = ""
        for path in re.findall(r"`([\w./]+(?:\.py|/))`", line):
            # "`plan/target.py`, `layout.py`": a bare name is in the folder named before it.
            folder, name = path.rsplit("/", 1) if "/" in path else (folder, path)
            found.add(f"{folder}/{name}" if folder else name)
    places = (ROOT, ROOT / "dpsql", ROOT / "dpsql" / "plan")
    missing = [path for path in sorted(found) if not any((p / path).exists() for p in places)]
    assert len(found) > 30
    assert missing == []


def test_classes_have_one_meaning_and_few_modules_lie_at_the_top() -> None:
    modules = [path for path in (ROOT / "dpsql").rglob("*.py") if path.name != "__init__.py"]
    classes = [
        name for path in modules for name in re.findall(r"^class (\w+)", path.read_text(), re.M)
    ]
    assert [name for name, times in Counter(classes).items() if times > 1] == []
    assert len(list((ROOT / "dpsql").glob("[!_]*.py"))) <= 8


def test_modules_are_imported_under_their_own_names() -> None:
    imports = re.compile(r"^ *from (dpsql[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
    found, count = [], 0
    for folder in ("dpsql", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            for package, names in imports.findall(path.read_text(encoding="utf-8")):
                home = ROOT / package.replace(".", "/")
                for name, alias in re.findall(r"(\w+) as (\w+)", names):
                    if (home / f"{name}.py").exists() or (home / name).is_dir():
                        count += 1
                        if alias not in (name, f"{name}_module"):
                            found.append((str(path.relative_to(ROOT)), name, alias))
    assert count > 0
    assert found == []


def test_what_an_ablation_switches_off_is_there() -> None:
    for name, entries in ablation.SWITCHES.items():
        for holder, entry, _ in entries:
            assert callable(getattr(holder, entry)), name


def test_each_errand_of_a_stranger_takes_three_files_that_say_what_is_told_of_them() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = [re.split(r" *\| *", line)[1:3] for line in text.splitlines() if line[:2] == "| "]
    errands = dict(rows[1 : [row[0] for row in rows].index("command")])
    assert len(errands) == 5
    for errand, where in errands.items():
        files = re.findall(r"`([^`]+)` \(`([^`]+)`", where)
        # what is told apart by a semicolon is an errand of its own
        assert 1 <= max(len(re.findall(r"`\S+\.\S+` \(", one)) for one in where.split(";")) <= 3
        for name, word in files:
            assert word in (ROOT / name).read_text(encoding="utf-8"), (errand, name, word)


def test_what_contributors_are_told_to_run_and_to_read_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = set(re.findall(r"`make ([\w-]+)`", text))
    assert len(asked) > 6
    assert asked <= targets
    named = re.findall(r"`((?:\.?[\w-]+/)*[\w.-]+\.(?:py|md|toml|json|yaml|sql))`", text)
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert len(named) > 15
    assert [path for path in (*named, *links) if not (ROOT / path).exists()] == []


def test_how_much_is_asked_is_said_by_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = re.compile(r"\b(int|float)\(os\.environ")
    reading = {
        path.name for path in (ROOT / "tests").rglob("*.py") if counted.search(path.read_text())
    }
    assert reading == {"effort.py", "torture.py"}  # the last is told by the test that starts it
    for value, found in ((1.0, (3, 0, 8, 40)), (10.0, (30, 36, 1, 4))):
        monkeypatch.setattr(effort, "EFFORT", value)
        shares = effort.one_in(8), effort.one_in(40)
        assert (effort.effort(3), effort.beyond(4), *shares) == found
