"""The walls: import contracts, lazy imports, no floating-point randomness in the membrane."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser, SectionProxy
from fnmatch import fnmatchcase
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "scipy", "duckdb", "sqlglot", "pandas", "rich", "prompt_toolkit")
PRIVACY = sorted((ROOT / "dpsql" / "privacy").rglob("*.py"))


DYNAMIC = {
    "catalog/codebooks/read.py": "modules of its own package, found in its folder",
    "answer/dataframes.py": "packages of data frames and pictures are optional",
    "engine/planning_preload.py": "all modules of packages that reach no rows, from a fixed list",
    "learn/schedule.py": "reads the constants of modules of its own package",
    "pgm/mbi_backend.py": "mbi is optional",
    "records.py": "compiles __init__ of dataclasses from the names of their fields",
    "answer/synthetic_tables.py": "the classes of stored models, from a fixed list",
    "server/preload.py": "all modules of packages, from a fixed list",
    "strategy/registry.py": "modules of its own package, from a fixed list",
    "privacy/vault/files/arrow_rows.py": "modules of its own package, by the kind of a file",
    "privacy/vault/servers/registry.py": "modules of its own package, by the engine of a server",
}
"""Modules that import by a name worked out at run time, which no contract sees."""


def circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Return the sets of modules that reach each other, lazy imports and those for types too."""
    below = {name: graph.find_upstream_modules(name) for name in graph.modules}
    found = []
    for name in sorted(below):
        around = {name, *(other for other in below[name] if name in below[other])}
        if len(around) > 1 and around not in found:
            found.append(around)
    return found


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph("dpsql", cache_dir=None)
    assert circles(graph) == []
    graph.add_import(importer="dpsql.errors", imported="dpsql.dbapi.connection")
    assert len(circles(graph)) == 1


def test_arrows_back_up_are_told_with_their_reasons() -> None:
    """A room imports those before it on the page about the house, or says why not."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8").split("## Floors")[1]
    floors, _, table = page.split("## ")[0].partition("| from |")
    rooms = [each.strip("/").replace("/", ".") for each in re.findall(r"`([\w/]+/)`", floors)]
    told = re.findall(r"^\| `([\w/.]+)` \| `([\w/.]+)` \| \S", table, re.M)
    reasons = {
        tuple(each.removesuffix(".py").strip("/").replace("/", ".") for each in row) for row in told
    }
    graph = grimp.build_graph("dpsql", cache_dir=None)

    def floor(module: str) -> int:
        name = module.removeprefix("dpsql.")
        found = [k for k, room in enumerate(rooms) if f"{name}.".startswith(f"{room}.")]
        return found[0] if found else -1

    used = set()
    wrong = []
    for one in sorted(each for each in graph.modules if floor(each) >= 0):
        for other in sorted(graph.find_modules_directly_imported_by(one)):
            if floor(other) > floor(one):
                why = {
                    (a, b)
                    for a, b in reasons
                    if f"{one}.".startswith(f"dpsql.{a}.") and f"{other}.".startswith(f"dpsql.{b}.")
                }
                used |= why
                wrong += [] if why else [(one, other)]
    assert wrong == []
    assert used == reasons
    assert len(rooms) > 20


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    place = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "400"}
    return subprocess.run(command, cwd=root, env=place, capture_output=True, text=True, check=False)


def test_import_contracts_hold() -> None:
    found = lint(ROOT)
    assert found.returncode == 0, found.stdout


def forbidden(contract: SectionProxy, module: str) -> list[str]:
    """Return what a contract by exclusion forbids a module to import."""
    allowed = [line.partition(":")[0] for line in contract["allowed"].split("\n") if line]
    names = contract["forbidden"].split()
    inside = any(module.startswith(f"{name}.") for name in names)
    return [] if inside or any(fnmatchcase(module, each) for each in allowed) else names


def test_a_forbidden_import_is_caught_wherever_it_is_planted(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dpsql", tmp_path / "dpsql", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copytree(ROOT / "tests" / "support", tmp_path / "tests" / "support")
    shutil.copy(ROOT / ".importlinter", tmp_path)
    written = ConfigParser()
    written.read(ROOT / ".importlinter")
    contracts = [each for each in written.values() if each.get("type") == "exclusion"]
    names = sorted({name for each in contracts for name in each["forbidden"].split()})
    packages = [path.parent for path in sorted((tmp_path / "dpsql").rglob("__init__.py"))]
    for package in packages:
        (package / "planted.py").write_text("".join(f"import {name}\n" for name in names))
    planted = [".".join((*package.relative_to(tmp_path).parts, "planted")) for package in packages]
    told = set(lint(tmp_path).stdout.splitlines())
    missed = {
        (module, name)
        for module in planted
        for contract in contracts
        for name in forbidden(contract, module)
        if f"{module} -> {name}" not in told
    }
    assert len(packages) > 8
    assert len(names) > 30
    assert missed == set()


def test_imports_by_name_are_few_and_known() -> None:
    found = set()
    wanted = {"import_module", "__import__", "exec", "eval", "run_module", "FunctionType"}
    for path in (ROOT / "dpsql").rglob("*.py"):
        text = path.read_text()
        if not any(name in text for name in wanted):
            continue
        tree = ast.parse(text)
        called = {
            getattr(node.func, "id", getattr(node.func, "attr", ""))
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
        }
        if called & wanted:
            found.add(str(path.relative_to(ROOT / "dpsql")))
    assert found == DYNAMIC.keys()


@pytest.mark.parametrize(
    "code",
    ["import dpsql", "sys.argv[1:] = ['--help']; from dpsql.__main__ import main; main()"],
    ids=["import", "help"],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    script = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit as stop:\n    assert not stop.code\n"
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]\nassert not heavy, heavy"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", PRIVACY, ids=lambda path: path.name)
def test_the_membrane_has_no_other_randomness(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not imported(tree) & {"random", "secrets", "numpy.random", "scipy.stats"}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert "random" not in attributes
    assert not attributes & {"default_rng", "RandomState", "seed"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "dpsql" / "learn").glob("*.py")), ids=lambda path: path.name
)
def test_mechanisms_that_choose_know_nothing_of_the_membrane(path: Path) -> None:
    names = imported(ast.parse(path.read_text()))
    assert not [name for name in names if name.startswith(("dpsql.privacy", "duckdb"))]


def test_only_the_engine_debits_and_only_the_doors_draw() -> None:
    names = [
        ".debit",
        "measure",
        "open_handle",
        "open_sums",
        "TableHandle",
        "BinSumHandle",
        "Bits",
        "find_keys",
    ]
    calls: dict[str, set[str]] = {name: set() for name in names}
    for path in (ROOT / "dpsql").rglob("*.py"):
        text = path.read_text()
        asked = any(name.strip(".") in text for name in names)
        for node in ast.walk(ast.parse(text)) if asked else ():
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", "." + getattr(node.func, "attr", ""))
                if name in calls:
                    calls[name].add(str(path.relative_to(ROOT / "dpsql")))
    assert calls[".debit"] == {"engine/charges.py"}
    assert calls["measure"] == {"engine/engine.py"}
    assert calls["open_handle"] | calls["open_sums"] <= {"engine/engine.py"}
    assert calls["TableHandle"] == calls["BinSumHandle"] == {"privacy/doors/look.py"}
    assert calls["Bits"] == {
        "privacy/doors/measure.py",
        "privacy/doors/look.py",
        "privacy/doors/find_keys.py",
    }
    assert calls["find_keys"] <= {"engine/engine.py"}


def test_nothing_derives_from_classes_of_sqlglot() -> None:
    """``sqlglot[c]`` has them compiled, and of those there are no others."""
    found = []
    for path in (ROOT / "dpsql").rglob("*.py"):
        text = path.read_text("utf-8")
        if "sqlglot" not in text or "class " not in text:
            continue
        tree = ast.parse(text)
        theirs = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom | ast.Import)
            for alias in node.names
            if (getattr(node, "module", None) or alias.name).split(".")[0] == "sqlglot"
        }
        bases = [b for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for b in node.bases]
        names = {ast.unparse(base).split(".")[0] for base in bases}
        found += [str(path)] * bool(theirs & names)
    assert found == []
