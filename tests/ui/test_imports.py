"""The command line must feel instant: what it imports before it is asked for anything."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"numpy", "scipy", "duckdb", "sqlglot", "pandas", "rich", "prompt_toolkit", "pyarrow"}

WITH_ARGUMENTS = """
import json, sys
from dpsql.ui.cli import run_command_line
status = run_command_line({arguments!r})
print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )


def test_importing_dpsql_loads_nothing_heavy() -> None:
    done = run_python("import dpsql, sys; print(*sys.modules)")
    assert not HEAVY & set(done.stdout.split())
    assert "click" not in done.stdout.split()


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["run", "--help"], ["init", "--help"], ["ledger", "--help"]],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    done = run_python(WITH_ARGUMENTS.format(arguments=arguments))
    status, modules = json.loads(done.stderr)
    assert status == 0
    assert not HEAVY & set(modules)
    assert "dpsql.dbapi.connection" not in modules


def test_the_main_module_prints_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dpsql", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: dpsql [OPTIONS] [CATALOG]")
    assert "dpsql run FILE.sql" in done.stdout
    assert done.stderr == ""
