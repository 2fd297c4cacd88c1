"""First hours with files as people have them: from a file to a report, by the command line.

A draft is edited for the privacy unit, domains and bounds, and for nothing else. Dirty files have
every pair of two forms; what init, check, connect and three statements say of them is compared with
the rows that were written, and with how pandas reads them in the same form.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import itertools
import random
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dpsql as package
from dpsql.dbapi.drafting import draft_catalog
from tests.support.effort import effort
from tests.support.stores import BUCKET, point_to, s3
from tests.ui.conftest import Run

PEOPLE = 400
UNIT = re.compile(r"^# (privacy_unit = \{ column = .*)$", re.M)


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def edited(path: Path, domains: dict[str, str], epsilon: str = "1.0") -> None:
    """The draft with its first proposed unit, and what each column may hold, from a codebook."""
    text = path.read_text(encoding="utf-8")
    if '\nprivacy_unit = "row"' not in text:
        text = UNIT.sub(r"\1", text, count=1)
    for name, words in domains.items():
        text, count = re.subn(
            rf"^({name} += \{{ type = \"\w+\") \}}", rf"\1, {words} }}", text, flags=re.M
        )
        assert count == 1, name
    path.write_text(text.replace("epsilon = 1.0", f"epsilon = {epsilon}"), encoding="utf-8")


def test_a_hospital_has_semicolons_in_cp1252(dpsql: Run, tmp_path: Path) -> None:
    rng = random.Random(1)
    lines = ["Fall-Nr;PatientID;Station;Geschlecht;Aufnahme;Größe;Gewicht;Rauchen"]
    for case in range(3 * PEOPLE):
        day = dt.datetime(2024, 1, 1) + dt.timedelta(hours=rng.randint(0, 8783))
        wards = rng.choice(["Chirurgie", "Innere", "Hals, Nase, Ohren", "Frühgeborene"])
        weight = rng.choice([f"{rng.randint(400, 990) / 10}".replace(".", ","), "k.A."])
        lines.append(
            f"{case};P{case % PEOPLE:05};{wards};{rng.choice('mw')};{day:%d.%m.%Y %H:%M};"
            f"{rng.randint(150, 200)};{weight};{rng.choice(['ja', 'nein'])}"
        )
    (tmp_path / "faelle.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    (tmp_path / "tabellen.sql").write_text(
        "SELECT Station, COUNT(*) AS n FROM faelle GROUP BY Station;\n"
        "SELECT AVG(Gewicht) AS gewicht FROM faelle WHERE Rauchen = 'ja';\n"
        "SELECT date_trunc('month', Aufnahme) AS m, COUNT(*) AS n FROM faelle GROUP BY m;\n",
        encoding="utf-8",
    )
    draft = dpsql("init", "faelle.csv", "-o", "klinik.toml")
    assert draft.status == 0
    for seen in ("between semicolons, in cp1252", "%d.%m.%Y %H:%M", "1234,5", "missing: k.A."):
        assert seen in draft.err
    edited(
        tmp_path / "klinik.toml",
        {
            "Station": 'domain = ["Chirurgie", "Innere", "Hals, Nase, Ohren", "Frühgeborene"]',
            "Aufnahme": 'domain = ["2024-01-01", "2024-12-31"], by = "day"',
            '"Größe"': "domain = [100, 220]",
            "Gewicht": "bounds = [0, 150], null = true",
            "Rauchen": 'domain = ["ja", "nein"]',
        },
    )
    checked = dpsql("check", "klinik.toml")
    assert checked.status == 0, checked.err
    assert f"opens; {3 * PEOPLE:,} rows" in checked.out
    assert not re.findall("leaves out|no rows", checked.out)
    run = ["run", "tabellen.sql", "--catalog", "klinik.toml", "--epsilon", "1"]
    assert dpsql(*run, "--dry-run").status == 0
    report = dpsql(*run, "--out", "tabellen", "--report", "bericht.html")
    assert report.status == 0, report.err
    assert "Frühgeborene" in (tmp_path / "bericht.html").read_text(encoding="utf-8")


def test_a_bank_has_decimal_commas_and_currency(dpsql: Run, tmp_path: Path) -> None:
    rng, total = random.Random(2), 0.0
    lines = ["Export of accounts;;;;", ";;;;", "Account;Customer_ID;Booked;Amount;Rate"]
    for booking in range(4 * PEOPLE):
        cents = rng.randint(-500_000, 2_000_000)
        total += cents / 100
        amount = f"{cents / 100:,.2f}".translate(str.maketrans(",.", ".,"))
        rate = f"{rng.randint(0, 90) / 8}".replace(".", ",")
        day = dt.date(2023, 1, 1) + dt.timedelta(rng.randint(0, 364))
        lines.append(f"DE{booking:018};{booking % PEOPLE};{day:%d.%m.%y};{amount} €;{rate} %")
    with gzip.open(tmp_path / "bookings.txt.gz", "wb") as file:
        file.write("\n".join(lines).encode())
    (tmp_path / "report.sql").write_text(
        "SELECT SUM(Amount) AS total, AVG(Rate) AS rate FROM bookings;\n"
        "SELECT EXTRACT(quarter FROM Booked) AS q, COUNT(*) AS n FROM bookings GROUP BY q;\n"
    )
    draft = dpsql("init", "bookings.txt.gz", "-o", "bank.toml")
    assert draft.status == 0
    columns = tomllib.loads((tmp_path / "bank.toml").read_text())["table"]["bookings"]
    assert columns["source"] == {
        "file": "bookings.txt.gz",
        "delimiter": ";",
        "decimal": ",",
        "thousands": ".",
        "dates": ["%d.%m.%y"],
        "skip": 2,
        "percent": True,
        "currency": ["€"],
    }
    edited(
        tmp_path / "bank.toml",
        {
            "Booked": 'domain = ["2023-01-01", "2023-12-31"], by = "month"',
            "Amount": "bounds = [-5000, 20000]",
            "Rate": "bounds = [0, 12]",
        },
        "1e6",
    )
    checked = dpsql("check", "bank.toml")
    assert f"opens; {4 * PEOPLE:,} rows" in checked.out, checked.out + checked.err
    assert not re.findall("leaves out|clipped", checked.out)
    run = ["run", "report.sql", "--catalog", "bank.toml", "--epsilon", "100"]
    told = dpsql(*run, "--out", "out", "--report", "report.html")
    assert told.status == 0, told.err
    with package.connect(tmp_path / "bank.toml", epsilon=100) as connection:
        (sum_,) = connection.execute("SELECT SUM(Amount) FROM bookings").fetchone() or (0,)
    assert float(sum_) == pytest.approx(total, rel=0.02)


def test_a_survey_institute_has_spss(dpsql: Run, tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    rng = random.Random(3)
    rows = [
        {"id": i, "sex": rng.choice([1, 2, 9]), "vote": rng.choice([1, 2, 3]), "age": 18 + i % 70}
        for i in range(PEOPLE)
    ]
    labels = {
        "sex": {1: "male", 2: "female", 9: "refused"},
        "vote": {1: "left", 2: "right", 3: "other"},
    }
    form = {"variable_value_labels": labels, "missing_ranges": {"sex": [9]}}
    pyreadstat.write_sav(pd.DataFrame(rows).astype(float), str(tmp_path / "wave.sav"), **form)
    (tmp_path / "tables.sql").write_text(
        "SELECT sex, vote, COUNT(*) AS n FROM wave GROUP BY sex, vote;\n"
        "SELECT CODE(vote) AS v, AVG(age) AS age FROM wave WHERE sex = 'female' GROUP BY v;\n"
    )
    assert dpsql("init", "wave.sav", "-o", "survey.toml").status == 0
    edited(
        tmp_path / "survey.toml", {"age": "bounds = [18, 99]"}, "1e6\nmax_epsilon_per_request = 1e6"
    )
    checked = dpsql("check", "survey.toml")
    assert f"opens; {PEOPLE} rows" in checked.out, checked.out + checked.err
    assert not re.findall("leaves out", checked.out)
    run = ["run", "tables.sql", "--catalog", "survey.toml", "--epsilon", "100"]
    told = dpsql(*run, "--out", "tables", "--report", "report.html")
    assert told.status == 0, told.err
    assert "female" in (tmp_path / "report.html").read_text(encoding="utf-8")
    with package.connect(tmp_path / "survey.toml", epsilon=1e4) as connection:
        sql = "SELECT vote, COUNT(*) FROM wave WHERE CODE(sex) = 2 GROUP BY vote"
        found = {vote: round(n) for vote, n in connection.execute(sql).fetchall()}
    women = Counter(labels["vote"][row["vote"]] for row in rows if row["sex"] == 2)
    assert found == women


def test_product_analytics_has_partitions_in_a_store(
    dpsql: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(4)
    pairs = [(year, country) for year in (2023, 2024) for country in ("DE", "FR")]
    rows = {
        pair: pd.DataFrame(
            {
                "user_id": [f"u{rng.randrange(PEOPLE)}" for _ in range(200)],
                "event": [rng.choice(["view", "buy"]) for _ in range(200)],
                "price": [rng.randint(0, 9900) / 100 for _ in range(200)],
            }
        )
        for pair in pairs
    }
    (tmp_path / "tables.sql").write_text(
        "SELECT country, event, COUNT(*) AS n FROM events GROUP BY country, event;\n"
        "SELECT year, SUM(price) AS paid FROM events WHERE event = 'buy' GROUP BY year;\n"
    )
    with s3() as (address, client):
        point_to(address, monkeypatch)
        for (year, country), frame in rows.items():
            key = f"events/year={year}/country={country}/part-0.parquet"
            client.put_object(Bucket=BUCKET, Key=key, Body=frame.to_parquet())
        draft = dpsql("init", f"s3://{BUCKET}/events/", "-o", "events.toml")
        assert draft.status == 0, draft.err
        assert "folders for year, country" in draft.err
        edited(
            tmp_path / "events.toml",
            {
                "year": "domain = [2023, 2024]",
                "country": 'domain = ["DE", "FR"]',
                "event": 'domain = ["view", "buy"]',
                "price": "bounds = [0, 100]",
            },
            "1e6\nmax_epsilon_per_request = 1e6",
        )
        text = (tmp_path / "events.toml").read_text()
        (tmp_path / "events.toml").write_text(text.replace("max_rows = 5", "max_rows = 20"))
        checked = dpsql("check", "events.toml")
        assert f"opens; {200 * len(pairs)} rows" in checked.out, checked.out + checked.err
        assert not re.findall("leaves out", checked.out)
        run = ["run", "tables.sql", "--catalog", "events.toml", "--epsilon", "100"]
        told = dpsql(*run, "--out", "tables", "--report", "report.html")
        assert told.status == 0, told.err
        with package.connect(tmp_path / "events.toml", epsilon=1e5) as connection:
            sql = "SELECT year, country, COUNT(*) FROM events GROUP BY year, country"
            found = {tuple(pair): round(n) for *pair, n in connection.execute(sql).fetchall()}
    assert found == dict.fromkeys(pairs, 200)


FORMS: dict[str, dict[str, Any]] = {
    "semicolons": {"delimiter": ";"},
    "tabs": {"delimiter": "\t"},
    "bars": {"delimiter": "|"},
    "cp1252": {"encoding": "cp1252"},
    "UTF-16": {"encoding": "utf-16"},
    "a mark of UTF-8": {"encoding": "utf-8-sig"},
    "decimal commas": {"decimal": ","},
    "thousands": {"thousands": True},
    "currency": {"currency": "€"},
    "percent": {"percent": True},
    "German days": {"dates": "%d.%m.%Y"},
    "American days": {"dates": "%m/%d/%Y"},
    "short years": {"dates": "%d.%m.%y"},
    "missing words": {"missing": "n.a."},
    "lines before": {"skip": 2},
    "no header": {"header": False},
    "the same name twice": {"twice": True},
    "returns": {"end": "\r\n"},
    "quotes": {"quoting": csv.QUOTE_ALL},
}
"""Forms of files, and what is said of each to the writer below."""
WORDS = ["klein", "groß", "a b", "x"]


def compatible(one: dict[str, Any], two: dict[str, Any]) -> bool:
    both = {**one, **two}
    return not (one.keys() & two.keys()) and not {"header", "twice"} <= both.keys()


def written(rng: random.Random, said: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Write a file in a form, and return its rows."""
    decimal = said.get("decimal", ".")
    more = {",": ".", ".": ","}[decimal] if said.get("thousands") else ""
    rows, lost = [], said.get("missing", "")
    for i in range(60):
        row: dict[str, Any] = {
            "nr": i,
            "wort": rng.choice(WORDS),
            "betrag": rng.randint(0, 999_999) / 100,
            "tag": dt.date(2024, 1, 1) + dt.timedelta(rng.randint(0, 365)),
        }
        if i % 7 == 3:
            row["betrag"] = None
        rows.append(row)
    text = io.StringIO()
    end = said.get("end", "\n")
    writer = csv.writer(
        text,
        delimiter=said.get("delimiter", ","),
        lineterminator=end,
        quoting=said.get("quoting", csv.QUOTE_MINIMAL),
    )
    text.write(f"Stand 2024{end}" * said.get("skip", 0))
    if said.get("header", True):
        writer.writerow(["nr", "nr" if said.get("twice") else "wort", "betrag", "tag"])
    for row in rows:
        money = f"{row['betrag']:,.2f}" if row["betrag"] is not None else ""
        money = money.translate(str.maketrans({",": more, ".": decimal}))
        if money:
            money += f" {said['currency']}" if "currency" in said else ""
            money += " %" if said.get("percent") and "currency" not in said else ""
        day = row["tag"].strftime(said.get("dates", "%Y-%m-%d"))
        writer.writerow([row["nr"], row["wort"], money or lost, day])
    path.write_bytes(text.getvalue().encode(said.get("encoding", "utf-8")))
    return rows


PAIRS = [
    (a, b)
    for a, b in itertools.combinations_with_replacement(FORMS, 2)
    if a == b or compatible(FORMS[a], FORMS[b])
]


@pytest.mark.parametrize("part", range(4))
def test_dirty_files_are_drafted_checked_and_asked(part: int, dpsql: Run, tmp_path: Path) -> None:
    rng = random.Random(part)
    for one, two in rng.sample(PAIRS[part::4], min(len(PAIRS) // 4, effort(5))):
        said, named = {**FORMS[one], **FORMS[two]}, f"{one}, {two}"
        folder = tmp_path / named
        folder.mkdir()
        path, catalog = folder / "t.csv", folder / "c.toml"
        rows = written(rng, said, path)
        assert dpsql("init", path, "-o", catalog).status == 0, named
        text = catalog.read_text(encoding="utf-8")
        drafted = tomllib.loads(text)["table"]["t"]
        types = [each["type"] for each in drafted["column"].values()]
        assert types == ["integer", "text", "number", "date"], (named, text)
        nr, word, money, day = drafted["column"]
        edits = {
            nr: "domain = [0, 59]",
            word: 'domain = ["klein", "groß", "a b", "x"]',
            money: "bounds = [0, 10000], null = true",
            day: 'domain = ["2024-01-01", "2024-12-31"], by = "month"',
        }
        catalog.write_text(text.replace('# privacy_unit = "row"', 'privacy_unit = "row"'), "utf-8")
        edited(catalog, edits, "1e6\nmax_epsilon_per_request = 1e6")
        checked = dpsql("check", catalog)
        assert f"opens; {len(rows)} rows" in checked.out, (named, checked.out + checked.err)
        assert "leaves out" not in checked.out, (named, checked.out)
        with package.connect(catalog, epsilon=1e5) as connection:
            ask = connection.execute
            by_word = dict(ask(f"SELECT {word}, COUNT(*) FROM t GROUP BY {word}").fetchall())
            months = f"SELECT EXTRACT(month FROM {day}) AS m, COUNT(*) FROM t GROUP BY m"
            by_month = {m: n for m, n in ask(months).fetchall() if n > 0.5}
            ((total, count),) = ask(f"SELECT SUM({money}), COUNT({money}) FROM t").fetchall()
        known = [row["betrag"] for row in rows if row["betrag"] is not None]
        assert {key: round(n) for key, n in by_word.items() if n > 0.5} == Counter(
            row["wort"] for row in rows
        ), named
        assert {m: round(n) for m, n in by_month.items()} == Counter(r["tag"].month for r in rows)
        assert round(float(count)) == len(known), named
        assert float(total) == pytest.approx(sum(known), rel=1e-3), named
        if not {"currency", "percent"} & said.keys():
            assert by_pandas(path, drafted["source"]) == pytest.approx(sum(known)), named


def by_pandas(path: Path, source: Any) -> float:
    """The sum of the third column as pandas reads it in the drafted form."""
    form = {"file": str(path), **(source if isinstance(source, dict) else {})}
    frame = pd.read_csv(
        path,
        sep=form.get("delimiter", ","),
        encoding=form.get("encoding", "utf-8-sig"),
        decimal=form.get("decimal", "."),
        thousands=form.get("thousands"),
        skiprows=form.get("skip", 0),
        header=None if "header" in form else 0,
        na_values=form.get("missing"),
    )
    return float(frame.iloc[:, 2].sum())


def test_a_blind_draft_reads_no_row(tmp_path: Path) -> None:
    rows = "".join(f"{i};{i},5;2024-01-01\n" for i in range(50))
    drafts = []
    for body in ("", rows, "x;y;z\n", "\xe9\n"):
        (tmp_path / "t.csv").write_bytes(b"age;price;when\n" + body.encode("latin-1"))
        drafts.append(draft_catalog(tmp_path / "t.csv", folder=tmp_path, blind=True))
    assert len({*drafts}) == 1
    assert "no value was read" in drafts[0]


def test_no_value_is_in_a_draft(tmp_path: Path) -> None:
    """Two files that are written alike have the same draft, whatever they hold."""
    drafts = set()
    for seed in range(3):
        rng = random.Random(seed)
        rows = "".join(
            f"{rng.choice(['Ann', 'Bob', 'Cy'])};{rng.randint(0, 99)},{rng.randint(1, 9)};"
            f"{rng.randint(13, 28)}.{rng.randint(10, 12)}.19{rng.randint(10, 99)}\n"
            for _ in range(rng.randint(5, 50))
        )
        (tmp_path / "t.csv").write_text("name;dose;born\n" + rows)
        drafts.add(draft_catalog(tmp_path / "t.csv", folder=tmp_path))
    assert len(drafts) == 1


def test_survival_time_is_a_number(tmp_path: Path) -> None:
    (tmp_path / "lung.csv").write_text("inst,time,status\n3,306,2\n3,455,2\nNA,1010,1\n")
    (table,) = tomllib.loads(draft_catalog(tmp_path / "lung.csv"))["table"].values()
    assert table["column"]["time"] == {"type": "integer"}
    blind = tomllib.loads(draft_catalog(tmp_path / "lung.csv", blind=True))["table"]["lung"]
    assert blind["column"]["time"] == {"type": "text"}
