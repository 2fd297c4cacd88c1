"""Worlds of the gate: catalogs and tables, and the statements that are asked of them."""

from __future__ import annotations

import os
import random
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unittest import mock

import duckdb

import dpsql
from dpsql.catalog.catalog import Catalog
from dpsql.catalog.read import read_catalog
from dpsql.errors import Error
from dpsql.sql.text.lexemes import split_statements
from tests.gate.collect import ARCHIVE, DEMO, ROOT
from tests.suites.suite import HERE, open_suite, read_suite
from tests.support.grammar import emitted, read_cases
from tests.support.oracle import VALUES, open_world
from tests.support.tables import World

SUITES = {
    "strangers": ("strangers", "analysts", "reports", "weekly"),
    **{name: (name,) for name in ("job_light", "mailorder", "ssb", "systems", "tpch")},
}
"""Suites by the tables that they are asked of."""
DEMOS = ("adult", "hospital", "census", "rand_hie")
PAGES = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in ["guide", "tutorial", "sums", "options", "analyst", "statistician"]
    ),
)
LARGE = {"census_sf1.sql": 40}
"""Files of one form many thousand times: one in so many is asked."""
_BUDGET = re.compile(r"^epsilon = [0-9.]+$", re.MULTILINE)
_FENCED = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FROM = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GateWorld:
    """A catalog with its tables: ``opened`` makes it in a folder, ``asked`` are its statements.

    ``exact`` are the statements that DuckDB is asked in place of some.
    """

    name: str
    opened: Callable[[Path], AbstractContextManager[World]]
    asked: tuple[str, ...]
    exact: dict[str, str]


@cache
def worlds() -> tuple[GateWorld, ...]:
    """Every world, in order."""
    return (_grammar(), *map(_suite, SUITES), *map(_demo, DEMOS), *_collected())


def _grammar() -> GateWorld:
    cases = [*read_cases("accepted.sql"), *read_cases("rejected.sql"), *emitted()]
    return GateWorld("grammar", _open_grammar, _unique(case.sql for case in cases), {})


@contextmanager
def _open_grammar(folder: Path) -> Iterator[World]:
    draw = random.Random(11)
    rows = [tuple(draw.choice(values) for values in VALUES) for _ in range(50)]
    state = {"XDG_STATE_HOME": str(folder / "state")}
    with mock.patch.dict(os.environ, state), open_world(folder, rows) as world:
        yield world


def _suite(name: str) -> GateWorld:
    asked = [each for suite in SUITES[name] for each in read_suite(HERE / f"{suite}.sql")]
    exact = {each.sql: each.exact for each in asked if each.exact is not None}
    statements = _unique(each.sql for each in asked)
    return GateWorld(name, partial(open_suite, name=name), statements, exact)


def _demo(name: str) -> GateWorld:
    """A demonstration catalog: its scripts, and what the pages ask of its tables."""
    catalog = read_catalog(DEMO / f"{name}.toml")
    found: list[str] = []
    for page in PAGES:
        for block in _FENCED.findall((ROOT / page).read_text("utf-8")):
            found += [each for each in _split(block) if _is_over(each, catalog)]
    for script in sorted(DEMO.glob("*.sql")):
        statements = _split(script.read_text("utf-8"))
        every = LARGE.get(script.name, 1)
        found += [each for each in statements[::every] if _is_over(each, catalog)]
    return GateWorld(f"demo/{name}", partial(_open_demo, name), _unique(found), {})


def _is_over(sql: str, catalog: Catalog) -> bool:
    names = {name.casefold() for name in _FROM.findall(sql)}
    return bool(names & catalog.tables.keys())


@contextmanager
def _open_demo(name: str, folder: Path) -> Iterator[World]:
    text = (DEMO / f"{name}.toml").read_text("utf-8")
    with _opened(folder, text) as world:
        yield world


def _collected() -> Iterator[GateWorld]:
    """The worlds of the oracle's tests."""
    if not ARCHIVE.exists():  # it is being collected
        return
    with zipfile.ZipFile(ARCHIVE) as archive:
        names = sorted({name.split("/")[0] for name in archive.namelist()})
        for name in names:
            asked = _split(archive.read(f"{name}/asked.sql").decode("utf-8"))
            yield GateWorld(f"oracle/{name}", partial(_open_collected, name), _unique(asked), {})


@contextmanager
def _open_collected(name: str, folder: Path) -> Iterator[World]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        for each in archive.namelist():
            if each.startswith(f"{name}/"):
                (folder / Path(each).name).write_bytes(archive.read(each))
    with _opened(folder, (folder / "t.toml").read_text("utf-8")) as world:
        yield world


@contextmanager
def _opened(folder: Path, text: str) -> Iterator[World]:
    """A connection to a catalog, whose budget allows every statement, and DuckDB with its tables.

    Tables that are not in the folder are those of the demonstration.
    """
    (folder / "gate.toml").write_text(_BUDGET.sub("epsilon = 1000000", text, count=1), "utf-8")
    state = {"XDG_STATE_HOME": str(folder / "state")}
    with duckdb.connect() as database, mock.patch.dict(os.environ, state):
        for name in re.findall(r'source\s*=\s*"(\w+\.parquet)"', text):
            if not (folder / name).exists():
                (folder / name).symlink_to(DEMO / name)
        with dpsql.connect(folder / "gate.toml", epsilon=1) as connection:
            for table in connection.catalog.tables.values():
                source = folder / str(table.source)
                database.execute(f"CREATE VIEW \"{table.name}\" AS FROM '{source}'")
            for view in connection.catalog.views.values():
                database.execute(f'CREATE VIEW "{view.name}" AS {view.sql}')
            yield connection, database


def _split(script: str) -> list[str]:
    try:
        return [each.body.strip() for each in split_statements(script)]
    except Error:
        return []


def _unique(statements: Iterator[str] | list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(statements))
