"""All rows of a table, read once: fetched by DuckDB, encoded by numpy, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np

from dpsql.catalog.catalog import Column, Table
from dpsql.catalog.domain import Bins
from dpsql.privacy.vault.encode import Floats, Values64, clip, encode, read_number, read_whole
from dpsql.privacy.vault.fetch import Fetch, UnitIdentity, fetch_column, fetch_unit
from dpsql.privacy.vault.hardened import create_enum
from dpsql.privacy.vault.rows import (
    Digest,
    Owners,
    Rows,
    line_up,
    number_doubles,
    number_texts,
    number_whole,
)
from dpsql.privacy.vault.source import Source
from dpsql.privacy.vault.tally import find_places
from dpsql.privacy.vault.vault import Codes

VECTORS = 32
"""How many vectors of 2,048 rows are fetched at once."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every row: the declared columns and the privacy unit, and nothing else."""

    columns: Mapping[str, Column]
    fetches: Mapping[str, Fetch]
    positions: tuple[int, ...]
    unit: int | None = None
    identity: UnitIdentity | None = None

    @property
    def listed(self) -> list[str]:
        """The expressions v0, s0, v1, ... of values and states, then u and o of the unit."""
        listed = [f"{each.value} AS v{i}" for i, each in enumerate(self.fetches.values())]
        states = enumerate(each.state for each in self.fetches.values())
        listed += [f"{state} AS s{i}" for i, state in states if state]
        if self.identity is not None:
            listed += [f"{self.identity.value} AS u", f"{self.identity.known} AS o"]
        return listed or ["0 AS v"]


@dataclass(frozen=True, slots=True)
class Parts:
    """What is known of the rows so far, one array per column and chunk."""

    codes: dict[str, list[Codes]] = field(default_factory=dict)
    places: dict[str, list[Codes]] = field(default_factory=dict)
    numbers: dict[str, list[Floats]] = field(default_factory=dict)
    units: list[Any] = field(default_factory=list)
    owned: list[Any] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def add(self, key: str, column: Column, values: Values64) -> None:
        """Encode one column of a chunk."""
        if column.bounds is not None:
            self.numbers.setdefault(key, []).append(clip(column, values))
        if column.domain is None:
            return
        codes = encode(column, values)
        self.codes.setdefault(key, []).append(codes)
        if isinstance(column.domain, Bins):
            numbers = np.asarray(values.numbers, dtype=np.float64)
            places = find_places(numbers, codes, tuple(map(float, column.domain.edges)))
            self.places.setdefault(key, []).append(places)


def load_rows(
    connection: duckdb.DuckDBPyConnection, source: Source, table: Table, salt: str
) -> Rows:
    """Read, encode and line up all rows of a table."""
    question, parts = ask(source, table), Parts()
    for i, fetch in enumerate(question.fetches.values()):
        if fetch.texts:
            create_enum(connection, f"e{i}", fetch.texts)
    select = source.select(connection, question.listed, question.positions, question.unit)
    for result in select:
        for chunk in _chunks(result):
            _add(parts, question, chunk)
    owners = None if question.identity is None else _owners(parts, question.identity)
    codes, places, numbers = _joined(parts.codes), _joined(parts.places), _joined(parts.numbers)
    rows = Rows(sum(parts.counts), codes, places, numbers, owners)
    return replace(rows, queue=line_up(rows, table, Digest(connection, salt)))


def ask(source: Source, table: Table) -> Question:
    """Return what is to be asked of the rows of a table."""
    declared = table.columns.items()
    columns = {key: each for key, each in declared if each.domain or each.bounds}
    places = {key: source.position(each.name) for key, each in columns.items()}
    fetches = {
        key: fetch_column(each, source.column_sql(places[key]), source.columns[places[key]][1], i)
        for i, (key, each) in enumerate(columns.items())
    }
    if table.unit.column is None:
        return Question(columns, fetches, tuple(dict.fromkeys(places.values())))
    unit = source.position(table.unit.column)
    raw, stored = source.column_sql(unit), source.columns[unit][1]
    identity = fetch_unit(raw, stored, source.valid_sql(unit))
    wanted = tuple(dict.fromkeys([*places.values(), unit]))
    return Question(columns, fetches, wanted, unit, identity)


def _chunks(result: duckdb.DuckDBPyConnection) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a result, a few at a time; the last chunk has none."""
    while True:
        chunk = result.fetch_df_chunk(VECTORS)
        yield {str(name): chunk[name].to_numpy() for name in chunk.columns}
        if chunk.empty:
            return


def _add(parts: Parts, question: Question, chunk: Mapping[str, Any]) -> None:
    for i, (key, fetch) in enumerate(question.fetches.items()):
        if fetch.whole:
            values = read_whole(chunk[f"v{i}"].astype(np.int64, copy=False), fetch.per_day)
        else:
            state = chunk[f"s{i}"].astype(np.uint8) if fetch.state else None
            values = read_number(chunk[f"v{i}"].astype(np.float64, copy=False), state)
        parts.add(key, question.columns[key], values)
    if question.identity is not None:
        parts.units.append(chunk["u"].astype(question.identity.dtype))
        parts.owned.append(chunk["o"].astype(np.bool_))
    parts.counts.append(len(next(iter(chunk.values()))))


def _owners(parts: Parts, identity: UnitIdentity) -> Owners:
    owned = np.concatenate(parts.owned)
    if identity.dtype is object:
        return number_texts(parts.units, owned)
    number = number_doubles if identity.dtype is np.float64 else number_whole
    return number(np.concatenate(parts.units), owned)


def _joined(parts: dict[str, list[Any]]) -> dict[str, Any]:
    """Put the chunks of every column together, and let go of them."""
    return {key: np.concatenate(parts.pop(key)) for key in list(parts)}
