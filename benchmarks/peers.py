"""One table against the peers that can be installed: SmartNoise SQL and OpenDP.

The Adult table as 13 columns of codes, a row as the privacy unit, epsilon 1. CPU seconds: a cold
process to its first answer, a warm query, and all 286 three-way marginals with one epsilon for all
of them, or as many as are done in 20 seconds; then the root mean squared error of their cells. A
peer is installed into an environment of its own below ``build/peers``, by pip, and left out with a
line where that cannot be done.
Run: ``python -m benchmarks.peers``.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt

from benchmarks.floor import DEMO
from dpsql.catalog.domain import Values
from dpsql.catalog.read import read_catalog

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "peers"
COLD = 3
Table = npt.NDArray[np.int64]
NUMBERS = {
    "age": ("(age - 17) // 5", 15),
    "hours_per_week": ("hours_per_week // 10", 10),
    "capital_gain": ("least(capital_gain // 5000, 4)", 5),
    "capital_loss": ("least(capital_loss // 500, 7)", 8),
}
"""How columns of numbers become codes, and how many there are."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer, the interpreter that has it, and its module here."""

    name: str
    python: str
    module: str


PEERS = {
    "SmartNoise SQL": ("smartnoise-sql>=1.0.4", "peer_smartnoise"),
    "OpenDP": ("opendp[polars]>=0.12", "peer_opendp"),
}


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exact = write(folder)
        print(f"\n{'':16}{'cold s':>8}{'warm ms':>9}{'marginals':>11}{'CPU s':>9}{'RMSE':>9}")
        print(line(Installed("dpsql", sys.executable, "peer_dpsql"), folder, exact), flush=True)
        for found in installed():
            print(line(found, folder, exact), flush=True)


def write(folder: Path) -> list[Table]:
    """Write the table, its catalog and what is asked; return the exact marginals."""
    sizes, coded = columns()
    with duckdb.connect() as database:
        listed = ", ".join(f"({sql})::INT AS {name}" for name, sql in coded.items())
        database.execute(f"CREATE TABLE t AS SELECT {listed} FROM '{DEMO / 'adult.parquet'}'")
        database.execute(f"COPY t TO '{folder / 't.parquet'}'")
        database.execute(f"COPY t TO '{folder / 't.csv'}'")
        found = database.execute("FROM t").fetchnumpy()
        codes = {name: np.asarray(each, dtype=np.int64) for name, each in found.items()}
    marginals = list(combinations(sizes, 3))
    (folder / "asked.json").write_text(json.dumps({"sizes": sizes, "marginals": marginals}))
    declared = "".join(
        f'{name} = {{ type = "integer", domain = [0, {size - 1}] }}\n'
        for name, size in sizes.items()
    )
    (folder / "t.toml").write_text(
        '[budget]\nepsilon = 100000\n\n[table.t]\nsource = "t.parquet"\nprivacy_unit = "row"\n'
        f"\n[table.t.column]\n{declared}"
    )
    return [count(codes, keys, [sizes[key] for key in keys]) for keys in marginals]


def count(codes: dict[str, Table], keys: Sequence[str], shape: Sequence[int]) -> Table:
    """The exact marginal of some columns."""
    places = np.ravel_multi_index([codes[key] for key in keys], tuple(shape))
    return np.bincount(places, minlength=int(np.prod(shape))).reshape(shape)


def columns() -> tuple[dict[str, int], dict[str, str]]:
    """How many codes each column has, and the SQL that makes them."""
    (table,) = read_catalog(DEMO / "adult.toml").tables.values()
    sizes = {name: size for name, (_, size) in NUMBERS.items()}
    coded = {name: sql for name, (sql, _) in NUMBERS.items()}
    for column in table.columns.values():
        if isinstance(column.domain, Values):
            listed = ", ".join(f"'{value}'" for value in column.domain.values)
            sizes[column.name] = column.domain.size
            coded[column.name] = f"list_position([{listed}], {column.name}) - 1"
    return sizes, coded


def installed() -> Iterator[Installed]:
    """The peers that are there, or can be installed; a line for each other."""
    for name, (wanted, module) in PEERS.items():
        place = BUILD / module
        python = place / "bin" / "python"
        if not (place / "complete").exists():
            venv.create(place, with_pip=True, clear=True)
            command = [str(python), "-m", "pip", "install", "--quiet", wanted]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                told = [text for text in done.stderr.splitlines() if text.startswith("ERROR")]
                print(f"{name:16}left out: {wanted} cannot be installed: {' '.join(told[-1:])}")
                continue
            (place / "complete").touch()
        yield Installed(name, str(python), module)


def line(peer: Installed, folder: Path, exact: list[Table]) -> str:
    """One peer's figures, or why there are none."""
    try:
        cold = float(np.median([first(peer, folder) for _ in range(COLD)]))
        figures = json.loads(asked(peer, "rest", folder))
    except subprocess.CalledProcessError as error:
        return f"{peer.name:16}left out: {error.stderr.strip().splitlines()[-1][:100]}"
    with np.load(folder / "answers.npz") as stored:
        answers = [stored[key] for key in stored.files]
    errors = [found - truth for found, truth in zip(answers, exact, strict=False)]
    flat = np.concatenate([each.ravel() for each in errors])
    rmse = float(np.sqrt(np.nanmean(flat**2)))
    missing = "  (of groups that the data have)" if np.isnan(flat).any() else ""
    return (
        f"{peer.name:16}{cold:8.2f}{1e3 * figures['warm']:9.1f}"
        f"{len(answers):6}/{len(exact):<4}{figures['cpu']:9.1f}{rmse:9.1f}{missing}"
    )


def first(peer: Installed, folder: Path) -> float:
    """CPU seconds of a process that answers once."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    asked(peer, "first", folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def asked(peer: Installed, what: str, folder: Path) -> str:
    """What a peer prints in a process of its own."""
    place = {**os.environ, "PYTHONPATH": str(ROOT), "DPSQL_CACHE": "off"}
    place |= {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("STATE", "CACHE", "DATA")}
    command = [peer.python, "-W", "ignore", "-m", f"benchmarks.{peer.module}", what, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=place, check=True)
    return done.stdout.splitlines()[-1] if done.stdout else ""


if __name__ == "__main__":
    main()
