"""The walls: import contracts, lazy imports, no floating-point randomness in the membrane."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("numpy", "scipy", "duckdb", "sqlglot", "pandas", "rich", "prompt_toolkit")
PRIVACY = sorted((ROOT / "dpsql" / "privacy").rglob("*.py"))


def test_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


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
    "path", sorted((ROOT / "dpsql" / "adaptive").glob("*.py")), ids=lambda path: path.name
)
def test_mechanisms_that_choose_know_nothing_of_the_membrane(path: Path) -> None:
    names = imported(ast.parse(path.read_text()))
    assert not [name for name in names if name.startswith(("dpsql.privacy", "duckdb"))]


def test_only_the_engine_debits_and_only_the_doors_draw() -> None:
    names = (".debit", "measure", "open_handle", "open_sums", "Looks", "SumLooks", "Bits")
    calls: dict[str, set[str]] = {name: set() for name in names}
    for path in (ROOT / "dpsql").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", "." + getattr(node.func, "attr", ""))
                if name in calls:
                    calls[name].add(str(path.relative_to(ROOT / "dpsql")))
    assert calls[".debit"] == {"engine.py"}
    assert calls["measure"] == {"engine.py"}
    assert calls["open_handle"] | calls["open_sums"] <= {"engine.py"}
    assert calls["Looks"] == calls["SumLooks"] == {"privacy/look.py"}
    assert calls["Bits"] == {"privacy/measure.py", "privacy/look.py"}


def test_no_module_is_long() -> None:
    lengths = {p: len(p.read_text().splitlines()) for p in (ROOT / "dpsql").rglob("*.py")}
    assert {str(path): lines for path, lines in lengths.items() if lines > 400} == {}
