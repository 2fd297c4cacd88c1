"""A server imports all that statements need before it listens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import dpsql
from dpsql.server.preload import import_all

import_all()
before = set(sys.modules)
with dpsql.connect(sys.argv[1], epsilon=1) as connection:
    for sql in (
        "SELECT sex, COUNT(*) AS n, AVG(age), MEDIAN(age) FROM adult GROUP BY sex",
        "SELECT n FROM (SELECT race, COUNT(*) AS n FROM adult GROUP BY race) WHERE n > 10",
        "EXPLAIN SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM adult GROUP BY age",
        "SHOW TABLES",
        "DESCRIBE adult",
    ):
        connection.execute(sql).fetchall()
print(*sorted(name for name in set(sys.modules) - before if name.startswith("dpsql.")))
"""


def test_no_statement_imports_a_module_later(demo: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(demo / "adult.toml")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
