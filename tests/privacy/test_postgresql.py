"""The same rows in PostgreSQL and in a file: every vector that leaves the vault is the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.held import one_snapshot
from dpsql.privacy.vault.vault import TableVault, open_vault
from tests.privacy.covering import Drawn, draw_sets, draw_table
from tests.support.postgres import Server, server, short_folder

SALT = b"0123456789abcdef"
TABLES = int(os.environ.get("ENGINE_TABLES", "24"))


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    with server(short_folder()) as found:
        yield found


def on_server(drawn: Drawn, read: str) -> Table:
    options = {"engine": "postgresql", "table": "public.t", "dsn_env": "CLINIC_DSN"}
    options |= {"read": read, "version": "1"}
    facts = "t", "postgresql://public.t", drawn.unit, drawn.columns
    return Table(*facts, options=tuple(options.items()))


@pytest.mark.parametrize("seed", range(TABLES))
def test_vectors_are_those_of_the_same_rows_in_a_file(
    seed: int, database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLINIC_DSN", database.address)
    drawn = draw_table(seed)
    database.store("public.t", drawn.postgres(), drawn.rows)
    with one_snapshot():
        file = open_vault(drawn.write(tmp_path / "t.parquet"), SALT)
        others = {read: open_vault(on_server(drawn, read), SALT) for read in ("stream", "push")}
        for view, resolutions, units in draw_sets(seed, drawn, 12):
            expected = file.within(view).tally(resolutions, units)
            for read, other in others.items():
                found = other.within(view).tally(resolutions, units)
                what = (read, drawn, view, resolutions, units)
                np.testing.assert_array_equal(found, expected, err_msg=str(what))
        close([file, *others.values()])


def close(vaults: list[TableVault]) -> None:
    for vault in vaults:
        vault.close()
