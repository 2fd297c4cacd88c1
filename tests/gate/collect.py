"""Statements of the oracle's tests, collected while these run: worlds with their statements.

A world is a catalog, a few rows of each of its tables and the statements that were asked of it. The
archive is data: what collects it runs once, when tests of the oracle have come or gone.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import duckdb
import pytest

from dpsql.catalog.catalog import Catalog
from dpsql.engine.planner import Planner

ROOT = Path(__file__).parents[2]
ARCHIVE = Path(__file__).with_name("oracle.zip")
DEMO = ROOT / "demo_data"
ROWS = 200
"""Rows of a table that are kept: enough for every group of most."""
EACH = 40
"""Statements of one test that are kept: those that draw ask for many of a kind."""
LONGEST = 4_000
"""Characters of a statement that is kept: longer ones are tests of limits."""
_SOURCE = re.compile(r'source\s*=\s*"([^"]*)"')
_FIRST = re.compile(r"\s*(select|with|from|\()", re.IGNORECASE)


class Collector:
    """A plugin of pytest that keeps what tests ask, world by world."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.worlds: dict[str, dict[str, None]] = {}
        self.left = EACH

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.left = EACH
        return (yield)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep what any connection reads."""
        read, collector = Planner.read, self

        def watched(planner: Planner, fragment: Any) -> Any:
            collector.keep(planner.catalog, fragment.body.strip())
            return read(planner, fragment)

        with mock.patch.object(Planner, "read", watched):
            yield

    def keep(self, catalog: Catalog, sql: str) -> None:
        """Keep a SELECT of a world whose tables are files beside the catalog."""
        if self.left <= 0 or len(sql) > LONGEST or not _FIRST.match(sql) or "?" in sql:
            return
        try:
            text = catalog.path.read_text("utf-8")
        except OSError:
            return
        if text not in self.worlds:
            if not _store(catalog.path, text, self.folder / name_of(text)):
                return
            self.worlds[text] = {}
        if sql not in self.worlds[text]:
            self.worlds[text][sql] = None
            self.left -= 1


def name_of(catalog: str) -> str:
    """The name of a world, which follows from its catalog."""
    return hashlib.sha256(catalog.encode()).hexdigest()[:6]


def _store(path: Path, text: str, folder: Path) -> bool:
    """Copy a catalog and the first rows of its tables; False where these are no files beside it."""
    sources = set(_SOURCE.findall(text))
    files = [path.parent / name for name in sources]
    if not all(re.fullmatch(r"\w+\.parquet", name) for name in sources):
        return False
    if not all(map(Path.is_file, files)):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "t.toml").write_text(text, encoding="utf-8")
    with duckdb.connect() as database:
        for file in files:
            target = folder / file.name
            if not (DEMO / file.name).exists():
                database.execute(
                    f"COPY (SELECT * FROM '{file}' LIMIT {ROWS}) TO '{target}'"
                    " (FORMAT parquet, COMPRESSION zstd)"
                )
    return True


def collect(folders: list[str]) -> int:
    """Run tests and write the archive of what they asked; return pytest's exit status."""
    with TemporaryDirectory() as name:
        collector = Collector(Path(name))
        with collector.watching():
            status = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *folders], [collector])
        for world, asked in collector.worlds.items():
            text = "".join(f"{sql};\n\n" for sql in asked)
            (Path(name) / name_of(world) / "asked.sql").write_text(text, encoding="utf-8")
        with zipfile.ZipFile(ARCHIVE, "w") as archive:
            for file in sorted(Path(name).rglob("*.*")):
                entry = zipfile.ZipInfo(str(file.relative_to(name)))  # of no date
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes(), compresslevel=9)
    return int(status)
