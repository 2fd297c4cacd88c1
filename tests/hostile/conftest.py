"""The world of tests/bad_inputs.json, with nothing charged, and the command line on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.world import catalog_text, write_data


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data files, written once."""
    folder = tmp_path_factory.mktemp("data")
    write_data(folder, "table")
    return folder


@pytest.fixture
def world(data: Path, tmp_path: Path) -> Path:
    """The path of a catalog of its own, with a total epsilon of 1000."""
    folder = tmp_path / "world"
    folder.mkdir()
    for name in ("adult.parquet", "visits.parquet"):
        os.link(data / name, folder / name)
    (folder / "world.toml").write_text(catalog_text(), encoding="utf-8")
    return folder / "world.toml"


@pytest.fixture
def connection(world: Path) -> Iterator[Connection]:
    """A connection that asks at epsilon 1."""
    with dpsql.connect(world, epsilon=1) as opened:
        yield opened


def own_copy(world: Path, name: str) -> Path:
    """Replace a linked data file by a copy that a test may change."""
    path = world.parent / name
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.replace(path)
    return path
