"""What a first plain answer does without, in a process of its own: imports that take long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpsql.__main__ import PATIENCE

ROOT = Path(__file__).parent.parent.parent

HEAVY = {
    *("pandas", "pyarrow", "polars", "scipy", "matplotlib", "pyspark", "psycopg", "IPython"),
    *("prompt_toolkit", "pygments", "rich", "jsonschema", "starlette", "uvicorn", "lark"),
    *("zoneinfo", "statistics", "threadpoolctl", "concurrent"),
    *("sqlalchemy", "asyncio", "multiprocessing", "http", "opendp", "mbi"),
}
"""Packages that a plain answer needs nothing of; pandas, pyarrow and scipy take .5 s together."""

SCRIPT = """
import sys
import dpsql

with dpsql.connect(sys.argv[1], epsilon=1) as connection:
    rows = connection.execute("SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex").fetchall()
    assert len(rows) == 2
    again = connection.execute("SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex").fetchall()
    assert again == rows
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""

ONCE = """
import sys
import dpsql

with dpsql.connect(sys.argv[1], epsilon=1) as connection:
    connection.execute("SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex").fetchall()
print(*(name for name in sys.modules if name.startswith("dpsql.")))
"""

MOST = 289
"""Modules of dpsql that one counting statement needs, of 691."""

RARE = {
    *(
        "learn.transcript",
        "learn.summed",
        "pgm.model",
        "privacy.doors.look",
        "privacy.doors.find_keys",
    ),
    *(
        "engine.clip",
        "engine.clipped_workload",
        "engine.discover",
        "engine.key_search",
        "engine.explain",
    ),
    *(
        "sql.inline",
        "sql.units.per_unit",
        "sql.measures.sums",
        "sql.rewrites.pivots",
        "sql.subqueries.running_totals",
        "sql.subqueries.rows_and_answers",
    ),
    *("strategy.queries", "strategy.separate", "strategy.symmetric"),
    *(
        "answer.synthetic_tables",
        "answer.implied",
        "privacy.vault.servers.group_sql",
        "privacy.vault.codes.digests",
    ),
    *(
        "catalog.read_line",
        "search.problem",
        "search.marginals.components",
        "privacy.budget.history",
    ),
    *(
        "privacy.vault.servers.registry",
        "privacy.vault.plugins",
        "privacy.vault.codes.node_weights",
    ),
    *("sql.rewrites.named_windows", "sql.rewrites.nested_joins", "pgm.project"),
}
"""What is for other statements, tables or servers; together half of all that dpsql is."""


def test_a_first_plain_answer_imports_nothing_heavy(demo: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(demo / "adult.toml")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = set(run.stdout.split())
    assert {"dpsql", "duckdb", "numpy", "sqlglot"} <= found
    assert not HEAVY & found


def test_a_first_plain_answer_imports_nothing_for_other_statements(demo: Path) -> None:
    command = [sys.executable, "-c", ONCE, str(demo / "adult.toml")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {name.removeprefix("dpsql.") for name in run.stdout.split()}
    assert not RARE & found
    assert len(found) <= MOST
    assert all((ROOT / "dpsql" / f"{name.replace('.', '/')}.py").exists() for name in RARE)


def test_the_command_waits_for_interrupts_before_it_imports_more() -> None:
    """What is interrupted before ``main`` ends with Python's traceback, not with status 130."""
    script = "import sys; known = set(sys.modules); import dpsql.__main__; "
    script += "print(*(set(sys.modules) - known))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= {"__future__", "dpsql", "dpsql.__main__"}


@pytest.mark.parametrize("own", [None, "26"])
def test_the_command_lets_no_core_be_kept_busy_unless_that_is_wanted(own: str | None) -> None:
    script = "import os, sys; sys.argv = ['dpsql', '--version']\n"
    script += "from dpsql.__main__ import main\ntry: main()\n"
    script += "finally: print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    given = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"}
    given |= {} if own is None else {"OPENBLAS_THREAD_TIMEOUT": own}
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
    assert run.stdout.split()[-1] == (own or PATIENCE)


ENDING = """
import atexit, sys
import dpsql.__main__ as entry

class Kept:
    def __del__(self):
        sys.stderr.write("taken apart ")

def answered(arguments):
    atexit.register(sys.stderr.write, "ended ")
    print("answered")
    return {status}

import dpsql.ui.cli as cli
cli.run_command_line, kept = answered, Kept()
entry.{begin}()
"""


@pytest.mark.parametrize(("begin", "said"), [("command", "ended "), ("main", "ended taken apart ")])
@pytest.mark.parametrize("status", [0, 2])
def test_the_command_ends_once_its_exit_functions_have_run(
    begin: str, said: str, status: int
) -> None:
    command = [sys.executable, "-c", ENDING.format(begin=begin, status=status)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (status, "answered\n", said)


def test_the_command_ends_as_python_does_where_nothing_can_be_written() -> None:
    script = ENDING.format(begin="command", status=0).replace("print(", "sys.stdout.write(")
    own = {key: each for key, each in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", script]
        run = subprocess.run(command, env=own, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 120
    assert "No space left on device" in run.stderr
