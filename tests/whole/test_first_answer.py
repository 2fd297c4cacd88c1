"""What a first plain answer does without, in a process of its own: imports that take long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = {
    *("pandas", "pyarrow", "polars", "scipy", "matplotlib", "pyspark", "psycopg", "IPython"),
    *("prompt_toolkit", "pygments", "rich", "jsonschema", "starlette", "uvicorn", "lark"),
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


def test_a_first_plain_answer_imports_nothing_heavy(demo: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(demo / "adult.toml")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = set(run.stdout.split())
    assert {"dpsql", "duckdb", "numpy", "sqlglot"} <= found
    assert not HEAVY & found
