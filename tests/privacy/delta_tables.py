"""Delta tables as another writer leaves them: appended to, deleted from, updated and compacted."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

Row = tuple[str, str, int]


def rows_of(chosen: random.Random, count: int) -> list[Row]:
    return [
        (f"p{chosen.randrange(5)}", chosen.choice("ABC"), chosen.randrange(10))
        for _ in range(count)
    ]


def arrow(rows: list[Row]) -> pa.Table:
    names = ("who", "ward", "age")
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})


def change(folder: Path, rows: list[Row], chosen: random.Random) -> list[Row]:
    """Let the writer do something, and say which rows there are afterwards."""
    what = chosen.choice(["append", "append", "overwrite", "delete", "update", "optimize"])
    if what in ("append", "overwrite"):
        more = rows_of(chosen, chosen.randint(1, 9))
        if what == "append":
            write_deltalake(folder, arrow(more), mode="append")
        else:
            write_deltalake(folder, arrow(more), mode="overwrite")
        return [*rows, *more] if what == "append" else more
    age = chosen.randrange(10)
    if what == "delete":
        DeltaTable(folder).delete(f"age = {age}")
        return [row for row in rows if row[2] != age]
    if what == "update":
        DeltaTable(folder).update({"ward": "'B'"}, predicate=f"age = {age}")
        return [(row[0], "B", age) if row[2] == age else row for row in rows]
    DeltaTable(folder).optimize.compact()
    return rows


def written(folder: Path, seed: int, changes: int) -> dict[int, list[Row]]:
    """Write a table, and return the rows of every version."""
    chosen = random.Random(seed)
    rows = rows_of(chosen, 20)
    write_deltalake(folder, arrow(rows))
    found = {0: rows}
    for _ in range(changes):
        rows = change(folder, rows, chosen)
        found[DeltaTable(folder).version()] = rows
    return found
