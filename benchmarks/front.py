"""From SQL text to compiled products: time and memory, as Markdown and JSON.

    OMP_NUM_THREADS=1 python -m benchmarks.front [--statements N] [--end] [--json FILE]

The 4,151 statements of the census, the same queries as 33 statements, and files of N / 4, N / 2 and
N distinct counting queries on Adult drawn from a fixed seed, each in a process of its own. Times
are CPU seconds from text to products; what sqlglot alone takes to parse the same text is the unit
of the ratios. Both do without Python's search for cycles, as dpsql does. --end also plans, measures
and answers the file of N statements with ``dpsql run``.
With ``pip install sqlglot[c]`` the parser is compiled; the first line says whether it is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

DEMO = Path(__file__).parent.parent / "demo_data"
SEED = 1
TEXTS = {
    "workclass": ["Private", "State-gov", "Local-gov", "?"],
    "education": ["HS-grad", "Bachelors", "Masters", "10th"],
    "marital_status": ["Divorced", "Widowed", "Separated"],
    "race": ["White", "Black", "Other"],
    "sex": ["Female", "Male"],
}
COMPILE = """
import resource, sys, time
import sqlglot
from dpsql.catalog.read import read_catalog
from dpsql.catalog import Catalog
from dpsql.sql.bind import no_public_rows
from dpsql.sql.text.cycle_collector import uncollected
from dpsql.sql.compose import compile_statement
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from dpsql.sql.products import Compiler

text = open(sys.argv[2], encoding="utf-8").read()
catalog = read_catalog(sys.argv[1])
start = time.process_time()
compiler = Compiler(catalog)
with uncollected():
    fragments = split_statements(text)
    statements = [parse(fragment, compiler.parts) for fragment in fragments]
    parsed = time.process_time()
    compiled = [compile_statement(item, compiler, no_public_rows) for item in statements]
done = time.process_time()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
bare = time.process_time()
with uncollected():
    for fragment in fragments:
        sqlglot.parse(fragment.body, read="duckdb")
bare = time.process_time() - bare
products = sum(len(answer.terms) for item in compiled for _, answer in item.answers())
print(len(compiled), products, parsed - start, done - parsed, bare, memory)
"""
RUN = """
import resource, subprocess, sys
command = [sys.executable, "-m", "dpsql", "run", sys.argv[2], "--catalog", sys.argv[1]]
command += ["--epsilon", "1", "--out", sys.argv[3]]
subprocess.run(command, check=True, capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)
"""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--statements", type=int, default=10_000, help="of the largest file")
    parser.add_argument("--end", action="store_true", help="also answer the largest file")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    compiled = is_compiled()
    print(f"sqlglot is {'compiled (sqlglotc)' if compiled else 'interpreted'}\n")
    print("| file | statements | products | parse | compile | total | of sqlglot alone | GiB |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for source in DEMO.glob("*.parquet"):
            shutil.copy(source, folder)
        for source in DEMO.glob("*.toml"):
            shutil.copy(source, folder)
        for file in ("census_sf1", "census_sf1_compact"):
            found.append(measure(file, folder / "census.toml", DEMO / f"{file}.sql"))
        counts = [options.statements // k for k in (4, 2, 1)]
        for count in counts:
            path = folder / f"random_{count}.sql"
            path.write_text(draw(count), encoding="utf-8")
            found.append(measure(path.stem, folder / "adult.toml", path))
        print_targets(found, compiled)
        if options.end:
            found.append(answer(folder, path))
    if options.json:
        options.json.write_text(json.dumps({"compiled": compiled, "files": found}, indent=1))


def is_compiled() -> bool:
    """Whether sqlglot's parser is the compiled extra."""
    import sqlglot.parser

    return not str(sqlglot.parser.__file__).endswith(".py")


def draw(count: int) -> str:
    """Return distinct counting queries on Adult, one per line.

    >>> len(set(draw(50).splitlines()))
    50
    """
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        low = rng.randint(17, 80)
        parts = [f"age BETWEEN {low} AND {rng.randint(low, 90)}"]
        if rng.random() < 0.7:
            parts.append(f"hours_per_week {rng.choice(['<', '>='])} {rng.randint(2, 98)}")
        for column in rng.sample(sorted(TEXTS), rng.randint(0, 2)):
            parts.append(f"{column} = '{rng.choice(TEXTS[column])}'")
        found[f"SELECT COUNT(*) AS n FROM adult WHERE {' AND '.join(parts)};\n"] = None
    return "".join(found)


def measure(name: str, catalog: Path, path: Path) -> dict[str, float | str]:
    """Compile a file in a process of its own; print and return its figures."""
    script = [sys.executable, "-c", COMPILE, str(catalog), str(path)]
    output = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    statements, products, parse, rest, bare, memory = map(float, output.split())
    total = parse + rest
    print(
        f"| {name} | {statements:.0f} | {products:.0f} | {parse:.2f} s | {rest:.2f} s "
        f"| {total:.2f} s | {total / bare:.2f} x | {memory:.2f} |",
        flush=True,
    )
    return {
        "file": name,
        "statements": statements,
        "products": products,
        "seconds": total,
        "sqlglot_seconds": bare,
        "gib": memory,
    }


def print_targets(found: Sequence[dict[str, float | str]], compiled: bool) -> None:
    """Print each figure next to the value it has to reach."""
    census, compact, *files = found
    each = [float(file["seconds"]) / float(file["statements"]) for file in files]
    growth = " : ".join(f"{time / each[0]:.2f}" for time in each)
    peak = max(float(file["gib"]) for file in found)
    print("\n| figure | value | to reach |\n|---|---|---|")
    limit = 1.5 if compiled else 3.0
    print(f"| census_sf1, text to products | {census['seconds']:.2f} s | < {limit} s |")
    ratio = float(census["seconds"]) / float(census["sqlglot_seconds"])
    print(f"| the same, of what sqlglot takes to parse it | {ratio:.2f} x | < 1.3 x |")
    print(f"| census_sf1_compact, products | {compact['products']:.0f} | <= 33 |")
    print(f"| time per statement at N/4, N/2, N | {growth} | not growing |")
    print(f"| peak memory | {peak:.2f} GiB | < 1 GiB |")


def answer(folder: Path, path: Path) -> dict[str, float | str]:
    """Plan, measure and answer a file; print and return CPU seconds and peak memory."""
    environment = dict(os.environ)
    for kind in ("STATE", "CACHE", "DATA"):
        environment[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
    script = [sys.executable, "-c", RUN, str(folder / "adult.toml"), str(path), str(folder / "out")]
    start = time.perf_counter()
    output = subprocess.run(script, check=True, capture_output=True, text=True, env=environment)
    wall = time.perf_counter() - start
    seconds, memory = map(float, output.stdout.split())
    print(
        f"| dpsql run, {path.stem} | {seconds:.0f} s CPU, {wall:.0f} s wall, {memory:.2f} GiB | |"
    )
    return {"file": f"run {path.stem}", "seconds": seconds, "gib": memory}


if __name__ == "__main__":
    main()
