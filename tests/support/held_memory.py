"""What random statements hold at their peak beside what was forecast, each in a process of its own.

Run: ``python -m tests.support.held_memory SEED COUNT MOST [LIMIT]`` prints one line of JSON for
every statement, of up to MOST cells. With a LIMIT in MiB it is the memory_limit, and the process
may not grow by more than that and what reading rows takes.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import scipy.linalg
import scipy.optimize
import scipy.sparse

import dpsql
from dpsql.errors import Error
from dpsql.plan import memory
from dpsql.search.problem import PLANNED

MEBIBYTE = 1 << 20
ROWS = 1000
SEARCHED, FEW = 10**6, 60
"""Cells of all columns from which on those are searched over that take seconds; the others have no
more than a few cells, or more than are planned with matrices."""

BESIDES = 1024
"""MiB of addresses that threads and allocators reserve beside what they use."""

CATALOG = """[budget]
epsilon = 1000
delta = 1e-4
max_epsilon_per_request = 10

[table.t]
source = "t.parquet"
privacy_unit = "row"
row_count_hint = 100000

[table.t.column]
x = { type = "number", bounds = [0, 1000] }
"""


def sizes_of(rng: random.Random, most: int) -> dict[str, int]:
    """The cells of one to four columns, of up to so many together."""
    together = int(10 ** rng.uniform(3.5, math.log10(most)))
    cuts = sorted(rng.random() for _ in range(rng.choice([0, 0, 1, 2, 3])))
    parts = [b - a for a, b in zip([0.0, *cuts], [*cuts, 1.0], strict=True)]
    sizes = [max(2, int(together**part)) for part in parts]
    if most < SEARCHED:
        sizes = [FEW if FEW < size <= PLANNED else size for size in sizes]
    return {f"c{j}": size for j, size in enumerate(sizes)}


def statement(rng: random.Random, sizes: Mapping[str, int]) -> str:
    """A statement of an ordinary kind over these columns and a measure x."""
    some = rng.sample([*sizes], k=rng.randint(1, min(3, len(sizes))))
    keys, first, rest = ", ".join(some), some[0], ", ".join(some[1:])
    running = f"SUM(COUNT(*)) OVER (ORDER BY {first})"
    third = sizes[first] // 3
    kinds = (
        f"SELECT {keys}, COUNT(*) AS n FROM t GROUP BY {keys}",
        f"SELECT {keys}, SUM(x) AS s, AVG(x) AS m, COUNT(*) AS n FROM t GROUP BY {keys}",
        f"SELECT {first}, {running} AS n FROM t GROUP BY {first}",
        f"SELECT {rest + ', ' if rest else ''}MEDIAN({first}) AS m FROM t"
        + (f" GROUP BY {rest}" if rest else ""),
        f"SELECT {keys}, COUNT(*) AS n FROM t GROUP BY {keys} ORDER BY n DESC LIMIT 10",
        f"WITH a AS (SELECT {keys}, COUNT(*) AS n FROM t GROUP BY {keys})"
        f" SELECT {first}, SUM(n) AS z, MAX(n) AS w FROM a GROUP BY {first}",
        f"SELECT COUNT(*) AS n FROM t WHERE {first} < {third} AND {some[-1]} > 1",
        f"SELECT {keys}, AVG(x) / 2 AS m FROM t GROUP BY {keys} HAVING COUNT(*) > 5",
        f"SELECT {keys}, COUNT(*) AS n FROM t GROUP BY ROLLUP({keys})",
        f"SELECT {keys}, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM t GROUP BY {keys}",
        f"SELECT {keys}, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS s FROM t GROUP BY {keys}",
        f"SELECT lo, COUNT(*) AS n FROM t JOIN (VALUES (0, {third}), (1, {third + 1})) b(lo, hi)"
        f" ON {first} BETWEEN lo AND hi GROUP BY lo",
        f"SELECT {keys}, COUNT(*) AS n FROM t GROUP BY {keys} UNION ALL"
        f" SELECT {keys}, COUNT(*) AS n FROM t WHERE {first} > 1 GROUP BY {keys}",
    )
    return rng.choice(kinds)


def write(folder: Path, sizes: Mapping[str, int]) -> None:
    """Write a catalog and a table with such columns."""
    columns = "".join(
        f'{name} = {{ type = "integer", domain = [0, {n - 1}] }}\n' for name, n in sizes.items()
    )
    (folder / "c.toml").write_text(CATALOG + columns)
    drawn = [f"(hash(i) % {n})::INT AS {name}" for name, n in sizes.items()]
    drawn.append("(hash(i) % 1000)::DOUBLE AS x")
    with duckdb.connect() as scribe:
        text = f"SELECT {', '.join(drawn)} FROM range({ROWS}) r(i)"
        scribe.execute(f"COPY ({text}) TO '{folder}/t.parquet'")


def held(what: str) -> float:
    """Memory of this process by the kernel, in MiB: VmRSS, VmHWM or VmSize."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{what}:")[2].split()[0]) / 1024


def measured(sizes: Mapping[str, int], sql: str, gaussian: bool, limit: int | None) -> Any:
    """What one statement holds to be planned and to be answered, in this process."""
    forecasts: list[int] = []
    refuse = memory.check_memory

    def noted(needed: Any, rows: int, most: int) -> None:
        forecasts.append(needed.total)
        refuse(needed, rows, most)

    setattr(memory, "check_memory", noted)  # noqa: B010 - mypy takes it for a slip otherwise
    terms: dict[str, Any] = {"delta": 1e-6, "noise": "gaussian"} if gaussian else {}
    out: dict[str, Any] = {"sql": sql, "sizes": [*sizes.values()], "gaussian": gaussian}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("STATE", "CACHE", "DATA"):
            os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
        os.environ["DPSQL_CACHE"] = "off"
        write(folder, sizes)
        with dpsql.connect(folder / "c.toml", epsilon=1, **terms) as connection:
            connection.execute("SELECT COUNT(*) FROM t").fetchall()
            paid = len(connection.entries())
            if limit is not None:
                connection.execute(f"SET memory_limit = '{limit}MiB'")
                most = int((held("VmSize") + limit + BESIDES) * MEBIBYTE)
                resource.setrlimit(resource.RLIMIT_AS, (most, most))
            base = held("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")
            try:
                connection.explain(sql)
                out["planned"] = held("VmHWM") - base
                out["rows"] = len(connection.execute(sql).fetchall())
            except Error as error:
                out["refused"] = error.code
                out["said"] = str(error)[:200]
            out["peak"] = held("VmHWM") - base
            out["charged"] = len(connection.entries()) - paid
    out["forecast"] = max(forecasts, default=0) / MEBIBYTE
    return out


def apart(sizes: Mapping[str, int], sql: str, gaussian: bool, limit: int | None) -> Any:
    """The same in a process of its own: what it held is no part of the next one's."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            found = measured(sizes, sql, gaussian, limit)
        except BaseException as error:
            found = {"sql": sql, "sizes": [*sizes.values()], "failed": repr(error)[:300]}
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(process, 0)
    return json.loads(text) if text else {"sql": sql, "failed": "killed"}


def main(arguments: list[str]) -> None:
    """Print what so many random statements hold."""
    seed, count, most, *limits = map(int, arguments)
    assert all(hasattr(scipy, name) for name in ("linalg", "optimize", "sparse"))  # read before
    rng = random.Random(seed)
    for _ in range(count):
        sizes = sizes_of(rng, most)
        case = (sizes, statement(rng, sizes), rng.random() < 0.5)
        print(json.dumps(apart(*case, limits[0] if limits else None)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
