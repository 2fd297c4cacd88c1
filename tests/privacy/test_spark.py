"""The same rows in Spark and in a file: every vector that leaves the vault is the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.privacy.vault.vault import open_vault
from tests.privacy.covering import draw_sets, draw_table
from tests.support.spark import MASTER, small_spark

SALT = b"0123456789abcdef"
TABLES = int(os.environ.get("SPARK_TABLES", "4"))


@pytest.fixture(scope="module", autouse=True)
def _spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with small_spark(tmp_path_factory.mktemp("spark")):
        yield


def in_spark(path: Path, unit: Unit, columns: dict[str, Column], read: str = "push") -> Table:
    options = {"engine": "spark", "master": MASTER, "path": str(path), "version": "1", "read": read}
    return Table("t", f"spark://{path}", unit, columns, options=tuple(sorted(options.items())))


@pytest.mark.parametrize("seed", range(TABLES))
def test_vectors_are_those_of_the_same_rows_in_a_file(seed: int, tmp_path: Path) -> None:
    drawn = draw_table(seed)
    path = tmp_path / "t.parquet"
    file = open_vault(drawn.write(path), SALT)
    reads = ("push", "stream") if seed % 4 == 0 else ("push",)
    others = {
        read: open_vault(in_spark(path, drawn.unit, drawn.columns, read), SALT) for read in reads
    }
    for view, resolutions, units in draw_sets(seed, drawn, 6):
        expected = file.within(view).tally(resolutions, units)
        for read, other in others.items():
            found = other.within(view).tally(resolutions, units)
            what = (read, drawn, view, resolutions, units)
            np.testing.assert_array_equal(found, expected, err_msg=str(what))
    for vault in (file, *others.values()):
        vault.close()
