"""The ledger is read: entries in words, sums, a page; whatever has become of the catalog."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

BY_SEX = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def charged(dpsql: Run, adult: Path) -> Path:
    """A charge of 0.25, a raise with a note, a long file, and two analysts."""
    analysts = "[analyst.Ana]\nepsilon = 2\n[analyst.bo]\nepsilon = 1\n"
    adult.write_text(adult.read_text() + analysts)
    assert dpsql(adult, "--analyst", "ana", "-e", "0.25", "-c", BY_SEX).status == 0
    assert dpsql("ledger", "raise", adult, "-e", "4.5", "--note", "wave two").status == 0
    long = ";\n".join(f"{BY_SEX} HAVING COUNT(*) > {i}" for i in range(40))
    Path("long.sql").write_text(long)
    done = dpsql(
        "run", "long.sql", "--catalog", adult, "--analyst", "bo", "-e", "0.5", "--out", "o"
    )
    assert done.status == 0, done.err
    return adult


def test_every_entry_says_what_it_was_for(dpsql: Run, charged: Path) -> None:
    first, debit, raised, last = rows(dpsql("ledger", charged, "--format", "csv").out)
    assert (first["kind"], first["change"]) == ("created", "total: epsilon 3")
    assert (debit["epsilon"], debit["sql"], debit["source"]) == ("0.25", BY_SEX, "")
    assert raised["change"] == "total: epsilon 3 -> 4.5"
    assert raised["note"] == "wave two"
    assert (last["source"], last["statements"]) == ("long.sql", "40")
    assert re.fullmatch("[0-9a-f]{32}", last["digest"])
    assert last["charged also to"] == "analyst bo"
    brief = dpsql("ledger", charged, "--format", "box").out
    assert "charged" in brief
    assert 'total: epsilon 3 -> 4.5; "wave two"' in brief
    assert f"long.sql, 40 statements, digest {last['digest'][:12]}" in brief


def test_charges_add_up_by_analyst_and_period(dpsql: Run, charged: Path) -> None:
    (mine,) = rows(dpsql("ledger", charged, "--analyst", "ANA", "--format", "csv").out)
    assert mine["epsilon"] == "0.25"
    (month,) = json.loads(dpsql("ledger", charged, "--by", "month", "--format", "json").out)
    assert (month["requests"], month["statements"], month["acts"]) == (2, 41, 2)
    assert (month["epsilon"], month["left"]) == ("0.75", "3.75")
    (day,) = rows(dpsql("ledger", charged, "--by", "day", "--analyst", "bo", "--format", "csv").out)
    assert len(day["day"]) == 10
    assert (day["requests"], day["left"]) == ("1", "0.5")
    nobody = dpsql("ledger", charged, "--analyst", "nobody")
    assert nobody.status == 2
    assert "analysts: ana, bo" in nobody.err
    assert dpsql("ledger", charged, "--by", "year").status == 2


def test_the_page_draws_what_was_left(dpsql: Run, charged: Path) -> None:
    done = dpsql("ledger", charged, "--html", "ledger.html")
    assert (done.status, done.out) == (0, "")
    page = Path("ledger.html").read_text()
    (drawing,) = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(ET.fromstring(drawing).findall(".//circle")) == 4
    assert "http" not in page
    assert "wave two" in page
    again = dpsql("ledger", charged, "--html", "ledger.html")
    assert again.status == 2
    assert "--force" in again.err
    assert dpsql("ledger", charged, "--html", "ledger.html", "--force").status == 0


def test_the_prompt_lists_the_ledger_in_words(dpsql: Run, charged: Path) -> None:
    done = dpsql(charged, "--analyst", "ana", stdin=".mode box\n.ledger\n.mode csv\n.ledger\n")
    assert "what" in done.out
    assert "wave two" in done.out
    assert "change,note" in done.out


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("sex            = {", "sexes = {", "column adult.sexes (new), column adult.sex (gone)"),
        ("complete = true", "complete = false", "table adult (changed)"),
        ("epsilon = 3.0", "epsilon = 5.0", "total: epsilon 3 -> 5"),
        ("[table.adult]", "[scratch]\nepsilon = 1\n[table.adult]", "drafts: new, epsilon 1"),
    ],
)  # fmt: skip
def test_a_changed_catalog_is_told_what_changed_and_the_ledger_stays_readable(
    dpsql: Run, adult: Path, old: str, new: str, told: str
) -> None:
    assert dpsql(adult, "-e", "0.25", "-c", BY_SEX).status == 0
    text = re.sub(r"^sex\s+= \{", "sex            = {", adult.read_text(), flags=re.MULTILINE)
    assert old in text
    adult.write_text(text.replace(old, new))
    refused = dpsql(adult, "-c", "SHOW budget")
    assert refused.status == 3
    assert "E_POLICY_CHANGED" in refused.err
    assert told in refused.err
    done = dpsql("ledger", adult, "--format", "csv")
    assert done.status == 3
    assert told in done.err
    assert "remaining  ε 2.75" in done.err
    assert [row["epsilon"] for row in rows(done.out)] == ["", "0.25"]
    assert dpsql("ledger", "migrate", adult, "--note", "on purpose").status == 0
    last = rows(dpsql("ledger", adult, "--format", "csv").out)[-1]
    assert last["change"].endswith(told)
    assert last["note"] == "on purpose"


def test_a_ledger_is_read_without_its_catalog_or_in_parts(dpsql: Run, adult: Path) -> None:
    assert dpsql(adult, "-e", "0.25", "-c", BY_SEX).status == 0
    adult.write_text("this is not TOML")
    done = dpsql("ledger", adult, "--format", "csv")
    assert done.status == 2
    assert "not valid TOML" in done.err
    assert len(rows(done.out)) == 2
    adult.unlink()
    assert len(rows(dpsql("ledger", adult, "--format", "csv").out)) == 2
    ledger = adult.with_suffix(".ledger")
    ledger.write_bytes(ledger.read_bytes().replace(b"laplace", b"lap1ace"))
    damaged = dpsql("ledger", adult, "--format", "csv", "--by", "day")
    assert damaged.status in (2, 3)
    assert rows(damaged.out)[0]["left"] == ""
    ledger.unlink()
    missing = dpsql("ledger", adult)
    assert (missing.status, missing.out) == (2, "")
