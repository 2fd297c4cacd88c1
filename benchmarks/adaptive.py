"""Data-dependent mechanisms against published and measured values, as Markdown and JSON.

    python -m benchmarks.adaptive [SECTION ...] [--data FOLDER] [--runs N] [--json FILE]

Sections are those of SECTIONS, all by default; each line of a table is a cell that is measured
over ``runs`` runs. Errors are means over runs with their standard errors. A cell is reached when
its mean is at most 25 % above the expected value, or keeps the limit that a column names; "unsure"
means that it misses that by less than two standard errors. Every cell and run has a seed of its
own, numpy.random.default_rng((SEED, crc32 of the cell's name, run)).

Noise is drawn by a fake handle with ordinary floating point, for research only, but for sums-sql
and through-sql, where dpsql draws it. Data sets come from FOLDER (adult, transfusion, contingency
and census2000, each in a folder of that name) and from the demonstration data; what is not there is
skipped.
"""

from __future__ import annotations

import argparse
import inspect
import json
import time
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adaptive_data import DEMO, SEED, Row
from benchmarks.adaptive_models import models, projection
from benchmarks.adaptive_mwem import (
    mwem_cuboids,
    mwem_gaussian,
    mwem_parities,
    mwem_ranges,
    mwem_yes_no,
)
from benchmarks.adaptive_sql import sums_sql, through_sql
from benchmarks.adaptive_sums import sums_batch, sums_gaussian, sums_single

SECTIONS: dict[str, Callable[[Path, int], list[Row]]] = {
    "mwem-ranges": mwem_ranges,
    "mwem-gaussian": mwem_gaussian,
    "mwem-parities": mwem_parities,
    "mwem-cuboids": mwem_cuboids,
    "mwem-yes-no": mwem_yes_no,
    "projection": projection,
    "models": models,
    "sums-batch": sums_batch,
    "sums-gaussian": sums_gaussian,
    "sums-single": sums_single,
    "sums-sql": sums_sql,
    "through-sql": through_sql,
}


def shown(value: Any) -> str:
    """Return a value for a table cell."""
    if isinstance(value, (float, np.floating)):
        return f"{value:.3g}"
    if isinstance(value, (tuple, list)):
        return "/".join(shown(v) for v in value)
    return "" if value is None else str(value)


def plain(value: Any) -> Any:
    """Return a value for JSON."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else float(value)


def print_table(rows: list[Row]) -> None:
    """Print rows as Markdown; the columns are those of any row."""
    heads = list(dict.fromkeys(head for row in rows for head in row))
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(shown(row.get(head)) for head in heads) + " |")


def main() -> None:
    """Run the sections asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION")
    parser.add_argument("--data", type=Path, default=DEMO.parent / "shared" / "data")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--runs", type=int, default=0, help="runs per cell, 0 for each default")
    given = parser.parse_args()
    results: dict[str, list[Row]] = {}
    for name in given.sections or SECTIONS:
        section = SECTIONS[name]
        about = inspect.cleandoc(section.__doc__ or "")
        print(f"\n### {name}\n\n{about}\nSEED = {SEED}.\n", flush=True)
        start = time.perf_counter()
        try:
            rows = results[name] = section(given.data, given.runs)
        except FileNotFoundError as missing:
            print(f"Skipped: {missing.filename} is not there.")
            continue
        print_table(rows)
        print(f"\n{time.perf_counter() - start:.0f} s", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1, default=plain))


if __name__ == "__main__":
    main()
