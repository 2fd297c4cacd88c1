"""Few descriptors are left: what is said is true, and the same of few rows and of many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LEFT = (0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 20, 40)
"""Descriptors that a process may open yet."""
SCRIPT = """
import json, os, resource, sys
from fractions import Fraction
from pathlib import Path
import numpy as np
from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import Error
from dpsql.privacy.vault.files.duckdb_pool import end_readers
from dpsql.privacy.vault.vault import TableVault
from dpsql.records import replace
from dpsql.workload.cells import Cells

folder, left = Path(sys.argv[1]), json.loads(sys.argv[2])
columns = {
    "c": Column("c", "integer", IntegerRange(0, 9)),
    "m": Column("m", "number", None, (Fraction(0), Fraction(10))),
}
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
usual = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def leave(number):
    taken = sorted(map(int, os.listdir("/proc/self/fd")))[:-1]
    holes = [os.dup(0) for _ in range(taken[-1] + 1 - len(taken))]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + number, hard))
    return holes


found = []
for spill in ((), (("spill", str(folder)),)):
    for when in ("open", "load", "tally"):
        for number in left:
            source = str(folder / "t.parquet")
            table = Table("t", source, Unit("who", 2), columns, options=spill, row_count_hint=5000)
            holes = leave(number) if when == "open" else []
            try:
                vault = TableVault(replace(table, room=5000), b"salt" * 8)
                holes += leave(number) if when == "load" else []
                vault.load()
                holes += leave(number) if when == "tally" else []
                vault.tally([Cells(("c",), (np.arange(10),))], True)
                told = ""
            except Error as error:
                told = str(error)
            except BaseException as error:
                told = f"{type(error)} {error}"
            resource.setrlimit(resource.RLIMIT_NOFILE, (usual, hard))
            for each in holes:
                os.close(each)
            vault = None
            end_readers()
            found.append([bool(spill), when, number, told])
print(json.dumps(found))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors cannot be listed")
def test_few_descriptors_are_told_truly_and_alike_of_all_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    found = []
    for rows in (10, 9_000):  # there is room for fewer
        values = range(rows)
        columns = {
            "c": pa.array([i % 10 for i in values], pa.int64()),
            "m": pa.array([i % 10 / 2 for i in values], pa.float64()),
            "who": pa.array([i // 3 for i in values], pa.int64()),
        }
        parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
        command = [sys.executable, "-c", SCRIPT, str(tmp_path), json.dumps(LEFT)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found.append(json.loads(told))
    assert found[0] == found[1]
    for *case, told in found[0]:
        assert not told or ("too many files open" in told and "E_DATA" in told), (case, told)
        assert not told or "raise its limit" in told
        assert told == "" or case[2] < LEFT[-1], case
    assert any(told for *_, told in found[0])
