"""A folder of dirty files: what init, check and three statements say of each is true, or a refusal.

Never a traceback, and never another count than that of the rows, unless it is said which are
missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dpsql
from dpsql.catalog.catalog import Table, Unit
from dpsql.catalog.delimited import PLAIN
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import Error
from dpsql.privacy.doors.check_figures import Figures
from dpsql.privacy.vault.files.duckdb import FILES
from dpsql.privacy.vault.rejected_lines import find_rejected_lines
from tests.support.dirty import ROWS, WARDS, Dirty, dirty_files
from tests.support.effort import first_seed, one_in
from tests.support.other_readers import read_as_drafted
from tests.support.seam import zero_noise

STATEMENTS = {
    "count": "SELECT COUNT(*) FROM t",
    "wards": "SELECT ward, COUNT(*) FROM t GROUP BY ward ORDER BY ward",
    "costs": "SELECT SUM(cost) FROM t",
}
BY_NAME = {each.name: each for each in dirty_files()}


ASKED = 8
"""Of so many files one is asked."""


@dataclass
class Told:
    """The answer of a file, an Error or what there is."""

    draft: str | Error = ""
    figures: Figures | Error | None = None
    answers: dict[str, Any] = field(default_factory=dict)
    notes: str = ""
    path: Path = Path()


def ask(dirty: Dirty, folder: Path, is_asked: bool = True) -> Told:
    """Go the way of a curator: draft, declare, check, and ask."""
    path = folder / f"t.{dirty.end}"
    path.write_bytes(dirty.body)
    told = Told(path=path)
    try:
        told.draft = draft_catalog(path, folder=folder)
    except Error as error:
        told.draft = error
        return told
    catalog = folder / "t.toml"
    catalog.write_text(declared(told.draft))
    try:
        (found,) = examine(chosen_tables(str(catalog), "t"), {})
        told.figures = found if isinstance(found, Figures | Error) else None
    except Error as error:
        told.figures = error
    if not is_asked:
        counted = told.figures.rows if isinstance(told.figures, Figures) else 0
        told.answers = {"count": [(counted,)], "wards": None, "costs": None}
        if isinstance(told.figures, Error):
            told.answers = dict.fromkeys(STATEMENTS, told.figures)
        return told
    with zero_noise():
        try:
            connection = dpsql.connect(catalog, epsilon=100)
        except Error as error:
            told.answers = dict.fromkeys(STATEMENTS, error)
            return told
        for name, sql in STATEMENTS.items():
            try:
                cursor = connection.execute(sql)
                told.answers[name] = cursor.fetchall()
                told.notes += " ".join(cursor.result.notes)
            except Error as error:
                told.answers[name] = error
        connection.close()
    return told


def declared(draft: str) -> str:
    """Declare what only a person knows in a draft: budget, unit, domain and bounds."""
    listed = ", ".join(f'"{ward}"' for ward in WARDS)
    head, *tables = re.split(r"^(?=\[table\.\w+\]$)", draft, flags=re.M)
    draft = head + tables[0]  # of two sheets the first is asked
    draft = re.sub(r"^epsilon = .*", "epsilon = 1000", draft, flags=re.M)
    draft = re.sub(r'^# (privacy_unit = "row").*', r"\1", draft, flags=re.M)
    draft = re.sub(r"^\[table\.\w+", "[table.t", draft, flags=re.M)
    kind = r"= \{ type = \"%s\" \}.*"
    draft = re.sub(
        rf"^(ward\s*){kind % 'text'}",
        rf'\1= {{ type = "text", domain = [{listed}] }}',
        draft,
        flags=re.M,
    )
    return re.sub(
        rf"^(cost\s*){kind % '(?:number|integer|decimal)'}",
        r'\1= { type = "number", bounds = [0, 20000] }',
        draft,
        flags=re.M,
    )


def faults(dirty: Dirty, told: Told) -> list[str]:
    """Return what is untrue in what was told of a file."""
    if isinstance(told.draft, Error):
        told.answers = dict.fromkeys(STATEMENTS, told.draft)
    found = [
        f"{name}: {error!r}"
        for name, error in told.answers.items()
        if isinstance(error, Error) and (error.code == "E_INTERNAL" or not error.hint)
    ]
    figures, count = told.figures, told.answers["count"]
    if isinstance(count, Error):
        return found if dirty.rows is None else [*found, f"not read: {count} {count.hint}"]
    if dirty.rows is None:  # what is whole after all is read, no part of it
        return found if count[0][0] == ROWS else [*found, f"read as {count[0][0]} rows"]
    assert isinstance(figures, Figures)
    ((rows,),) = count
    lost = sum(each.count for each in figures.unread)
    if rows != figures.rows or (rows != len(dirty.rows) + dirty.more and not lost):
        found.append(f"{rows} rows are counted, {figures.rows} checked, {len(dirty.rows)} there")
    if len(dirty.rows) - rows > dirty.lost:
        found.append(f"{len(dirty.rows) - rows} rows are lost, {dirty.lost} need be")
    by_name = {each.name: each for each in figures.columns}
    kept = sum(each.outside for each in by_name.values() if each.name in ("ward", "cost"))
    wards, costs = told.answers["wards"], told.answers["costs"]
    true = {ward: sum(row.ward == ward for row in dirty.rows) for ward in WARDS}
    if isinstance(wards, Error):
        found += [f"wards: {wards}"] * dirty.wards
    elif wards is not None and dict(wards) != true and not (lost or kept):
        found.append(f"wards are {wards}, and {true} in truth")
    total = sum(row.cost or 0 for row in dirty.rows)
    if isinstance(costs, Error):
        found += [f"costs: {costs}"] * dirty.costs
    elif costs is not None and abs((costs[0][0] or 0) - total) > 1 and not (lost or kept):
        found.append(f"costs are {costs}, and {total} in truth")
    if (dirty.wards and not dirty.lost and rows and by_name["ward"].outside) or (
        dirty.costs and not dirty.lost and rows and by_name["cost"].undeclared
    ):
        found.append(f"values are not read: {by_name}")
    return found + unlike_others(told, rows, lost)


def unlike_others(told: Told, rows: int, lost: int) -> list[str]:
    """Return in what pandas or pyreadstat read other rows of a file, as its draft declares it.

    A line that dpsql says is no row may be one to them, or a part of one.
    """
    assert isinstance(told.draft, str)
    other = read_as_drafted(told.path, told.draft) if rows else None
    if other is None:
        return []
    found = []
    if abs(len(other) - rows) > lost:
        found.append(f"other readers have {len(other)} rows, and {rows} are counted")
    if not isinstance(told.answers["wards"], list) or lost or "ward" not in other:
        return found
    wards = {ward: int((other["ward"] == ward).sum()) for ward in WARDS}
    if wards != dict(told.answers["wards"]):
        found.append(f"other readers have {wards}, and {told.answers['wards']} are told")
    costs = told.answers["costs"]
    numbers = other["cost"] if "cost" in other else other["ward"]
    if isinstance(costs, list) and pd.api.types.is_numeric_dtype(numbers):
        total = float(numbers.sum())
        if abs(total - (costs[0][0] or 0)) > 1:
            found.append(f"other readers have costs of {total}, and {costs} are told")
    return found


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_said_of_a_dirty_file_is_true(name: str, tmp_path: Path) -> None:
    """Files are all drafted and checked; statements are asked of one in ASKED, and then of all."""
    dirty, place = BY_NAME[name], [*BY_NAME].index(name)
    is_asked = first_seed(place) % one_in(ASKED) == 0
    assert not faults(dirty, ask(dirty, tmp_path, is_asked))


SPECTRUM: dict[str, tuple[str, int | list[tuple[str | None, ...]]]] = {
    "comma_in_quotes": ('first,last,zip\nJohn,"Doe, J.",08123\n', [("John", "Doe, J.", "08123")]),
    "empty": ('a,b,c\n1,"",""\n2,3,4\n', [("1", None, None), ("2", "3", "4")]),
    "empty_crlf": ('a,b,c\r\n1,"",""\r\n2,3,4\r\n', [("1", None, None), ("2", "3", "4")]),
    "escaped_quotes": ('a,b\n1,"ha ""ha"" ha"\n3,4\n', [("1", 'ha "ha" ha'), ("3", "4")]),
    "json": (
        'key,val\n1,"{""type"": ""Point"", ""at"": [1.0, 0.5]}"\n',
        [("1", '{"type": "Point", "at": [1.0, 0.5]}')],
    ),
    "newlines": ('a,b,c\n1,2,3\n"Once upon \na time",5,6\n7,8,9\n', 1),
    "quotes_and_newlines": ('a,b\n1,"ha \n""ha"" \nha"\n3,4\n', 3),
    "simple": ("a,b,c\n1,2,3\n", [("1", "2", "3")]),
    "simple_crlf": ("a,b,c\r\n1,2,3\r\n", [("1", "2", "3")]),
    "utf8": ("a,b,c\n1,2,3\n4,5,\u02a4\n", [("1", "2", "3"), ("4", "5", "\u02a4")]),
    "location_coordinates": ("x,y\n-12.5,+0.25\n", [("-12.5", "+0.25")]),
}
"""Cases like those of csv-spectrum: a text, and its rows, or the number of lines that are none.

The end of a value with a newline is a row by itself where it has as many fields as the header.
"""


@pytest.mark.parametrize("name", SPECTRUM)
def test_cases_of_other_readers(name: str, tmp_path: Path) -> None:
    text, rows = SPECTRUM[name]
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    names = text.split("\n")[0].strip().split(",")
    stored = FILES.open(Table("t", str(path), Unit(), {}))
    assert [column for column, _ in stored.columns] == names
    columns = [[v for part in stored.texts(each) for v in part.tolist()] for each in names]
    if isinstance(rows, int):
        assert len([*find_rejected_lines(str(path), PLAIN, None)]) == rows
    else:
        assert [*zip(*columns, strict=True)] == rows


def test_there_are_as_many_kinds_as_names() -> None:
    assert len(BY_NAME) == len(list(dirty_files())) >= 70
