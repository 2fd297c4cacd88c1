"""Render the 4151 counting queries of the Census SF1 person tables as SQL: census_sf1.sql.

Run ``python demo_data/make_sf1.py QUERIES.json [--out FILE]``. The input lists, for each query, one
set of cells per attribute:

    attributes  [[name, size], ...]
    products    names of the tables the queries belong to, such as "P12a"
    cells       attribute -> list of cell lists
    queries     [product, index per attribute ...]; indices into cells, -1 is "any"

Statement i of the output is query i.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

TITLES = {
    "P1": "Total population",
    "P3": "Race",
    "P4": "Hispanic or Latino origin",
    "P5": "Hispanic or Latino origin by race",
    "P8": "Race: every combination, and the number of races",
    "P9": "Hispanic or Latino, and not Hispanic or Latino by race",
    "P10": "Race, 18 years and over",
    "P11": "Hispanic or Latino, and not Hispanic or Latino by race, 18 years and over",
    "P12": "Sex by age",
    "P12A": "Sex by age, by race and origin",
    "PCT12": "Sex by single years of age",
    "PCT12A": "Sex by single years of age, by race and origin",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the SQL file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "census_sf1.sql")
    options = parser.parse_args(arguments)
    text = render(json.loads(options.queries.read_text(encoding="utf-8")))
    options.out.write_text(text, encoding="utf-8")


def render(source: Mapping[str, Any]) -> str:
    """Return the whole file: one block per product, one statement per line."""
    sizes = {str(name): int(size) for name, size in source["attributes"]}
    predicates = {
        name: [predicate(name, cells, size) for cells in source["cells"][name]]
        for name, size in sizes.items()
    }
    blocks = []
    for product, queries in groupby(source["queries"], key=lambda query: int(query[0])):
        lines = [heading(source["products"][product])]
        lines += [statement(predicates, query[1:]) for query in queries]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def heading(product: str) -> str:
    """Return the comment line of a block.

    >>> heading("P12A_c")
    '-- P12A_c: Sex by age, by race and origin'
    """
    table = product.partition("_")[0].rstrip("abc")
    return f"-- {product}: {TITLES[table]}"


def statement(predicates: Mapping[str, Sequence[str]], indices: Sequence[int]) -> str:
    """Return one counting statement."""
    chosen = zip(predicates.values(), indices, strict=True)
    conditions = [texts[index] for texts, index in chosen if index >= 0]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT COUNT(*) AS people FROM person{where};"


def predicate(column: str, cells: Sequence[int], size: int) -> str:
    """Say in SQL that ``column``, an integer in 0..size-1, is one of ``cells``.

    >>> predicate("age", range(18, 115), 115), predicate("age", [22, 23, 24], 115)
    ('age >= 18', 'age BETWEEN 22 AND 24')
    >>> predicate("race", [3, 5, 6], 8), predicate("race", [0, 1, 2, 4, 5, 7], 8)
    ('race IN (3, 5, 6)', 'race NOT IN (3, 6)')
    """
    chosen = sorted(cells)
    low, high = chosen[0], chosen[-1]
    if low == high:
        return f"{column} = {low}"
    if high - low + 1 == len(chosen):
        if low == 0:
            return f"{column} < {high + 1}"
        return f"{column} >= {low}" if high == size - 1 else f"{column} BETWEEN {low} AND {high}"
    rest = sorted(set(range(size)) - set(chosen))
    negated, shown = ("NOT ", rest) if len(rest) < len(chosen) else ("", chosen)
    return f"{column} {negated}IN ({', '.join(map(str, shown))})"


if __name__ == "__main__":
    main()
