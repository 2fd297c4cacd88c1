"""Write the 4151 counting queries of census_sf1.sql as 33 statements: census_sf1_compact.sql.

Run ``python demo_data/make_sf1_compact.py``. The input is census_sf1.sql itself: every block of it
asks each combination of some conditions on each column once. Conditions that divide the declared
values become a key of GROUP BY; conditions that overlap become the rows of a VALUES list that the
table is joined with. Statement i of the output is block i of the input.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
SIZES = {"sex": 2, "hispanic": 2, "race": 64, "age": 115}
ANY_BITS = (0, 6)

Cells = frozenset[int]


def main() -> None:
    """Write the SQL file."""
    text = (FOLDER / "census_sf1.sql").read_text(encoding="utf-8")
    (FOLDER / "census_sf1_compact.sql").write_text(render(text), encoding="utf-8")


def render(text: str) -> str:
    """Return the whole file: one statement for every block of ``text``."""
    return "\n".join(f"{heading}\n{statement(lists)}\n" for heading, lists in blocks(text))


def blocks(text: str) -> Iterator[tuple[str, list[list[Cells]]]]:
    """Yield the heading of every block and, per column, the cells of its conditions in order."""
    for block in text.strip().split("\n\n"):
        heading, *lines = block.splitlines()
        rows = [conditions(line) for line in lines]
        asked: list[list[Cells]] = [[] for _ in SIZES]
        for k, row in enumerate(zip(*rows, strict=True)):
            seen = dict.fromkeys(row)
            # A block over one column may ask the same condition twice.
            asked[k] = list(row) if len(seen) > 1 and len(set(rows)) == len(seen) else list(seen)
        if sorted(map(key, rows)) != sorted(map(key, itertools.product(*asked))):
            raise ValueError(f"{heading} is not a product of conditions")
        yield heading, asked


def key(row: Sequence[Cells]) -> list[list[int]]:
    """Return a row of conditions in a form that sorts."""
    return [sorted(cells) for cells in row]


def conditions(line: str) -> tuple[Cells, ...]:
    """Return the cells of every column that a statement counts.

    >>> [len(cells) for cells in conditions("SELECT 1 FROM person WHERE sex = 0 AND age >= 85;")]
    [1, 2, 64, 30]
    """
    where = line.partition(" WHERE ")[2].rstrip(";")
    return tuple(condition(where, column, size) for column, size in SIZES.items())


def condition(where: str, column: str, size: int) -> Cells:
    """Return the cells of ``column`` in 0..size-1 that fulfil its part of ``where``."""
    found = re.search(rf"\b{column} (=|<|>=|BETWEEN|IN|NOT IN) ((?:\d+ AND )?\d+|\(.*?\))", where)
    if found is None:
        return frozenset(range(size))
    numbers = [int(number) for number in re.findall(r"\d+", found.group(2))]
    match found.group(1):
        case "<":
            return frozenset(range(numbers[0]))
        case ">=":
            return frozenset(range(numbers[0], size))
        case "BETWEEN":
            return frozenset(range(numbers[0], numbers[1] + 1))
        case "NOT IN":
            return frozenset(range(size)) - set(numbers)
        case _:
            return frozenset(numbers)


def statement(lists: Sequence[Sequence[Cells]]) -> str:
    """Return one statement for all combinations of conditions, one list per column."""
    keys: dict[str, str] = {}
    join = ""
    where = []
    for (column, size), asked in zip(SIZES.items(), lists, strict=True):
        if len(asked) == 1:
            where += [predicate(column, cells) for cells in asked if len(cells) < size]
        elif sum(map(len, asked)) == size and len(frozenset().union(*asked)) == size:
            keys |= partition(column, asked)
        else:
            keys["line"] = "line"
            join = joined(column, asked)
    shown = [name if text == name else f"{text} AS {name}" for name, text in keys.items()]
    condition = f"\nWHERE {' AND '.join(where)}" if where else ""
    group = f"\nGROUP BY {', '.join(keys)}" if keys else ""
    return (
        f"SELECT {', '.join([*shown, 'COUNT(*) AS people'])}\nFROM person{join}{condition}{group};"
    )


def predicate(column: str, cells: Cells) -> str:
    """Say in SQL that a column is one of consecutive cells.

    >>> predicate("age", frozenset(range(18, 115))), predicate("sex", frozenset([1]))
    ('age >= 18', 'sex = 1')
    """
    if len(cells) == 1:
        return f"{column} = {min(cells)}"
    return f"{column} >= {min(cells)}"


def partition(column: str, asked: Sequence[Cells]) -> dict[str, str]:
    """Return a key, by name, whose groups are the conditions asked of a column.

    >>> partition("age", [frozenset([0]), frozenset([1]), frozenset([2, 3])])
    {'age_from': 'CASE WHEN age < 2 THEN age ELSE 2 END'}
    """
    if all(len(cells) == 1 for cells in asked):
        return {column: column}
    if all(max(cells) - min(cells) + 1 == len(cells) for cells in asked):
        return {f"{column}_from": intervals(column, asked)}
    alone = sorted(min(cells) for cells in asked if len(cells) == 1)
    if len(alone) != len(asked) - 1:
        raise ValueError(f"conditions on {column} are not a partition known to this program")
    listed = ", ".join(map(str, alone))
    return {f"{column}_alone": f"CASE WHEN {column} IN ({listed}) THEN {column} END"}


def intervals(column: str, asked: Sequence[Cells]) -> str:
    """Return the first value of the interval that holds the value of a column."""
    branches = []
    ordered = sorted(asked, key=min)
    for single, run in itertools.groupby(ordered[:-1], key=lambda cells: len(cells) == 1):
        group = list(run)
        if single:
            branches.append(f"WHEN {column} < {max(group[-1]) + 1} THEN {column}")
        else:
            branches += [f"WHEN {column} < {max(c) + 1} THEN {min(c)}" for c in group]
    return f"CASE {' '.join(branches)} ELSE {min(ordered[-1])} END"


def joined(column: str, asked: Sequence[Cells]) -> str:
    """Return a join with a list of lines: ranges of a column, and of its number of one bits."""
    found = [line_of(cells) for cells in asked]
    names, on = ["line", "low", "high"], f"{column} BETWEEN low AND high"
    if any(line[2:] != ANY_BITS for line in found):
        names += ["fewest", "most"]
        on += f" AND bit_count({column}) BETWEEN fewest AND most"
    lines = [(k, *line)[: len(names)] for k, line in enumerate(found, 1)]
    listed = [f"({', '.join(map(str, line))})" for line in lines]
    rows = ",\n  ".join(", ".join(listed[i : i + 6]) for i in range(0, len(listed), 6))
    return f"\nJOIN (VALUES\n  {rows}\n) AS lines({', '.join(names)}) ON {on}"


def line_of(cells: Cells) -> tuple[int, int, int, int]:
    """Return the range of ``cells``, and the fewest and most one bits of its members.

    >>> line_of(frozenset([5])), line_of(frozenset([3, 5, 6, 9, 10, 12]))
    ((5, 5, 0, 6), (3, 12, 2, 2))
    """
    low, high = min(cells), max(cells)
    if len(cells) == high - low + 1:
        return (low, high, *ANY_BITS)
    counts = [cell.bit_count() for cell in cells]
    fewest, most = min(counts), max(counts)
    if cells != {c for c in range(low, high + 1) if fewest <= c.bit_count() <= most}:
        raise ValueError(f"a condition that this program does not know: {sorted(cells)}")
    return low, high, fewest, most


if __name__ == "__main__":
    main()
