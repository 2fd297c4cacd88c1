"""A small table of people with every kind of column, for the tests of synthetic tables."""

from __future__ import annotations

from pathlib import Path

ROWS = 240
CATALOG = """
[budget]
epsilon = {epsilon}
delta = {delta}

{analyst}
[table.people]
source = "people.csv"
privacy_unit = {unit}
{extra}
[table.people.column]
person = {{ type = "text" }}
sex = {{ type = "text", domain = ["F", "M"] }}
age = {{ type = "integer", domain = [0, 9] }}
ward = {{ type = "text", domain = ["A", "B", "C"], null = true }}
pay = {{ type = "number", bins = [0, 10, 20, 50] }}
hired = {{ type = "date", domain = ["2020-01-01", "2020-12-31"], by = "quarter" }}
fixed = {{ type = "text", domain = ["x"] }}
cost = {{ type = "number", bounds = [0, 100] }}

[table.other]
source = "other.csv"
privacy_unit = "row"
[table.other.column]
x = {{ type = "integer", domain = [0, 4] }}

[table.wards]
source = "wards.csv"
public = true
[table.wards.column]
ward = {{ type = "text", domain = ["A", "B", "C"] }}
beds = {{ type = "integer", domain = [0, 100] }}
"""


def people(
    folder: Path,
    which: str = "table",
    *,
    epsilon: str = "50",
    delta: str = "1e-6",
    unit: str = '"row"',
    extra: str = "",
    analyst: str = "",
) -> Path:
    """Write data and catalog: ``table``, ``more`` (one row more) or ``empty``."""
    folder.mkdir(parents=True, exist_ok=True)
    count = {"table": ROWS, "more": ROWS + 1, "empty": 0}[which]
    lines = ["person,sex,age,ward,pay,hired,fixed,cost", *map(row, range(count))]
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    (folder / "other.csv").write_text("x\n" + "".join(f"{i % 5}\n" for i in range(20)))
    (folder / "wards.csv").write_text("ward,beds\nA,10\nB,20\nC,30\n")
    catalog = folder / "people.toml"
    facts = {"epsilon": epsilon, "delta": delta, "unit": unit, "extra": extra, "analyst": analyst}
    catalog.write_text(CATALOG.format(**facts))
    return catalog


def row(i: int) -> str:
    """One line of the table; sex and age, and ward and pay, go together."""
    sex, ward = "FM"[i % 3 == 0], ("A", "B", "C", "")[i % 7 % 4]
    age, pay = (i % 5) + (5 if sex == "M" else 0), (5, 15, 30, 45)[i % 7 % 4]
    return f"p{i // 2},{sex},{age},{ward},{pay},2020-{1 + i % 12:02d}-15,x,{i % 50}"
