"""Three tables of one unit: what reading and joining them takes, beside a table joined beforehand.

A million visits of 100,000 patients with half a million prescriptions. CPU seconds of processes
of one thread, the least of some; loads are from EXPLAIN on, so that they hold no planning.
Run: ``OMP_NUM_THREADS=1 python -m benchmarks.tables``.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import duckdb

import dpsql
from dpsql.dbapi.connection import Connection

TABLES = {
    "patients": "SELECT i AS patient_id, if(hash(i) % 2 = 0, 'f', 'm') AS sex, "
    "hash(i + 7) % 90 AS age FROM range(100000) r(i)",
    "visits": "SELECT i AS visit_id, (hash(i) % 100000)::BIGINT AS patient_id, "
    "'w' || hash(i + 3) % 8 AS ward, hash(i + 5) % 365 AS day FROM range(1000000) r(i)",
    "lines": "SELECT (hash(i + 1) % 1000000)::BIGINT AS visit_id, 'd' || hash(i + 2) % 20 AS drug "
    "FROM range(500000) r(i)",
    "flat": "SELECT * FROM visits JOIN patients USING (patient_id)",
    "flat_lines": "SELECT * FROM lines JOIN flat USING (visit_id)",
}
PATIENT = """
sex = { type = "text", domain = ["f", "m"] }
age = { type = "integer", domain = [0, 89] }
"""
VISIT = f"""
ward = {{ type = "text", domain = {[f"w{i}" for i in range(8)]} }}
day = {{ type = "integer", domain = [0, 364] }}
"""
LINE = f"""
drug = {{ type = "text", domain = {[f"d{i}" for i in range(20)]} }}
"""
COLUMNS = {
    "patients": PATIENT,
    "visits": VISIT,
    "lines": LINE,
    "flat": PATIENT + VISIT,
    "flat_lines": PATIENT + VISIT + LINE,
}
UNITS = {
    "patients": 'column = "patient_id", max_rows = 1',
    "visits": 'column = "patient_id", max_rows = 20',
    "lines": 'through = "visits", on = "visit_id", max_rows = 20',
    "flat": 'column = "patient_id", max_rows = 20',
    "flat_lines": 'column = "patient_id", max_rows = 20',
}
FROM = {
    "flat": "flat",
    "visits and patients": "visits JOIN patients USING (patient_id)",
    "flat_lines": "flat_lines",
    "all three": "lines JOIN visits USING (visit_id) JOIN patients USING (patient_id)",
}
ROUNDS = 5
STATEMENTS = ("SELECT sex, ward, COUNT(*) FROM {} GROUP BY ALL", "SELECT COUNT(*) FROM {}")


def main() -> None:
    """Print a line for each FROM: its load, its first statement, other ones, and a repetition.

    Each is measured in processes of its own, in turns; loads are told in those of the flat table.
    """
    found: dict[str, list[list[float]]] = {what: [] for what in FROM}
    for _ in range(ROUNDS):
        for what in FROM:
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                found[what].append(alone.submit(measured_alone, what).result())
    print(f"{'':22} {'load':>7} {'first':>7} {'warm':>7} {'again':>7} {'x flat':>7}")
    flat = min(figures[0] for figures in found["flat"])
    for what, rounds in found.items():
        least = [min(figures) for figures in zip(*rounds, strict=True)]
        shown = " ".join(f"{each:7.3f}" for each in (*least, least[0] / flat))
        print(f"{what:22} {shown}", flush=True)


def measured_alone(what: str) -> list[float]:
    """The figures of one FROM over tables and a ledger of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        write(folder)
        with dpsql.connect(folder / "t.toml", epsilon=1) as connection:
            return measured(connection, FROM[what])


def write(folder: Path) -> None:
    """Write the tables and their catalog."""
    sections = ["[budget]\nepsilon = 1000\n[unit.patient]\n"]
    with duckdb.connect() as database:
        for name, sql in TABLES.items():
            database.execute(f"CREATE TABLE {name} AS {sql}")
            database.execute(f"COPY {name} TO '{folder / name}.parquet'")
            refers = 'references = { patients = "patient_id" }' if name == "visits" else ""
            unit = f"privacy_unit = {{ {UNITS[name]} }}\n{refers}"
            source = f'[table.{name}]\nsource = "{name}.parquet"\n{unit}'
            sections.append(f"{source}\n[table.{name}.column]{COLUMNS[name]}")
    (folder / "t.toml").write_text("\n".join(sections))


def measured(connection: Connection, source: str) -> list[float]:
    """CPU seconds of the load, a first statement, a new one when warm, and one that is free."""
    first, warm = (sql.format(source) for sql in STATEMENTS)
    connection.explain(first)
    catalog = connection.engine.known
    table = next(reversed(catalog.derived), source)
    return [
        seconds(lambda: connection.engine.vaults[table].load()),
        seconds(lambda: connection.execute(first).fetchall()),
        seconds(lambda: connection.execute(warm).fetchall()),
        seconds(lambda: connection.execute(warm).fetchall()),
    ]


def seconds(work: Callable[[], object]) -> float:
    """The CPU seconds of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
