"""``dpsql run``: one workload, one charge, whole outputs or none."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

WORKLOAD = """-- two tables that must agree
SELECT sex, race, COUNT(*) AS people FROM adult GROUP BY sex, race;
SELECT sex, COUNT(*) AS people FROM adult GROUP BY sex;
SELECT COUNT(*) FROM adult WHERE age < 30;
"""


@pytest.fixture
def workload(adult: Path) -> Path:
    path = adult.parent / "tour.sql"
    path.write_text(WORKLOAD)
    return path


def debits(dpsql: Run, catalog: Path) -> int:
    done = dpsql("ledger", catalog, "--format", "csv")
    return [row["kind"] for row in csv.DictReader(io.StringIO(done.out))].count("debit")


def files_beside_the_ledger(catalog: Path) -> list[str]:
    names = [str(path) for path in catalog.parent.rglob("*")]
    return sorted(
        name for name in names if not re.search(r"adult\.(ledger|releases)|anchors", name)
    )


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_writes_one_file_per_statement_and_a_summary(
    dpsql: Run, adult: Path, workload: Path
) -> None:
    done = dpsql("run", workload, "--catalog", adult, "--epsilon", "1", "--out", "results")
    assert (done.status, done.out) == (0, "")
    assert "error" in done.err
    names = sorted(path.name for path in Path("results").iterdir())
    assert names == [
        "001_sex_race_people.csv", "002_sex_people.csv", "003_count.csv",
        "summary.json", "summary.md",
    ]  # fmt: skip
    assert debits(dpsql, adult) == 1
    assert sorted(path.name for path in adult.parent.iterdir() if path.name[0] == ".") == []


def test_the_tables_of_a_run_agree_up_to_rounding(dpsql: Run, adult: Path, workload: Path) -> None:
    dpsql("run", workload, "--catalog", adult, "-e", "1", "--out", "results")
    fine = read_csv(Path("results/001_sex_race_people.csv"))
    for row in read_csv(Path("results/002_sex_people.csv")):
        parts = [float(r["people"]) for r in fine if r["sex"] == row["sex"]]
        assert sum(parts) == pytest.approx(float(row["people"]), abs=(len(parts) + 1) / 2)


def test_the_summary_holds_forecast_cost_and_receipt(
    dpsql: Run, adult: Path, workload: Path
) -> None:
    dpsql("run", workload, "--catalog", adult, "-e", "0.5", "--out", "results")
    summary = json.loads(Path("results/summary.json").read_text())
    assert (summary["epsilon"], summary["remaining_epsilon"]) == ("0.5", "2.5")
    assert summary["forecast_rmse"] > 0
    assert summary["comparisons"]
    assert len(summary["receipt"]["head"]) >= 32
    assert [s["rows"] for s in summary["statements"]] == [10, 2, 1]
    assert summary["statements"][1]["stddev"]["people"]["max"] > 0
    text = Path("results/summary.md").read_text()
    assert "001_sex_race_people.csv" in text
    assert "| this plan" in text


def test_without_out_the_answers_go_to_stdout(dpsql: Run, adult: Path, workload: Path) -> None:
    done = dpsql("run", workload, "--catalog", adult, "-e", "1", "--format", "jsonl")
    assert done.status == 0
    assert len(done.out.splitlines()) == 13
    assert all(json.loads(line) for line in done.out.splitlines())


def test_a_dry_run_prints_the_forecast_and_leaves_no_trace(
    dpsql: Run, adult: Path, workload: Path
) -> None:
    done = dpsql(
        "run", workload, "--catalog", adult, "-e", "1", "--dry-run", "--out", "o", "--report", "r"
    )
    assert done.status == 0
    assert "3 statements" in done.out
    assert not Path("o").exists()
    assert not Path("r").exists()
    assert debits(dpsql, adult) == 0


def test_the_report_is_one_page_without_scripts_or_links(
    dpsql: Run, adult: Path, workload: Path
) -> None:
    done = dpsql("run", workload, "--catalog", adult, "-e", "1", "--report", "r.html")
    assert done.status == 0
    assert "sex,race,people" in done.out
    page = Path("r.html").read_text(encoding="utf-8")
    assert not re.search(r"<script|<link|src=|url\(|@import|\son\w+=", page)
    assert set(re.findall(r'href="(.{5})', page)) == {"#001_", "#002_", "#003_", "data:"}
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == 3
    for drawing in drawings:
        ET.fromstring(drawing)
    for part in (
        "SELECT sex, race",
        "lower bound",
        "receipt",
        "ε 1, δ 0",
        "±",
        "each row of adult",
    ):
        assert part in page
    (carried, *_) = re.findall(r'href="data:text/csv;base64,([^"]+)"', page)
    rows = list(csv.reader(io.StringIO(base64.b64decode(carried).decode())))
    assert rows[0] == ["sex", "race", "people", "people_stddev"]
    assert len(rows) == 11


def test_a_dry_run_above_the_budget_says_so(dpsql: Run, adult: Path, workload: Path) -> None:
    done = dpsql("run", workload, "--catalog", adult, "-e", "7", "--dry-run")
    assert done.status == 5
    assert "3 statements" in done.out
    assert "Requested 7, Remaining 3, Difference 4" in done.err
    gaussian = ["-e", "7", "--delta", "1e-9", "--noise", "gaussian"]
    assert dpsql("run", workload, "--catalog", adult, *gaussian, "--dry-run").status == 5
    assert debits(dpsql, adult) == 0


def test_the_forecast_names_all_statements_and_columns(dpsql: Run, adult: Path) -> None:
    counts = [f"SELECT COUNT(*) AS n{i} FROM adult WHERE age = {17 + i}" for i in range(23)]
    means = "SELECT sex, AVG(age) AS mean_age, COUNT(*) AS n FROM adult GROUP BY sex"
    Path("many.sql").write_text(";\n".join([*counts, means]))
    done = dpsql("run", "many.sql", "--catalog", adult, "-e", "1", "--dry-run")
    assert all(f"n{i}" in done.out for i in range(23))
    assert "mean_age: its error follows from the answers" in done.out
    assert "more statements" not in done.out


def test_the_least_epsilon_for_an_error_is_found(dpsql: Run, adult: Path, workload: Path) -> None:
    asked = ["run", workload, "--catalog", adult, "--max-stddev"]
    done = dpsql(*asked, "20", "--out", "o")
    assert done.status == 0
    summary = json.loads(Path("o/summary.json").read_text())
    assert 0.01 < float(summary["epsilon"]) < 1
    errors = [e["max"] for s in summary["statements"] for e in s["stddev"].values()]
    assert 15 < max(errors) <= 20.001
    assert dpsql(*asked, "none").status == 2


def test_a_part_of_public_row_counts_is_kept_to(dpsql: Run, adult: Path, workload: Path) -> None:
    asked = ["run", workload, "--catalog", adult, "--within"]
    refused = dpsql(*asked, "5%")
    assert refused.status == 1
    assert "is not public" in refused.err
    text = adult.read_text()
    adult.write_text(text.replace("[table.adult]", "[table.adult]\nrow_count_hint = 48842", 1))
    done = dpsql(*asked, "5%", "--dry-run")
    assert done.status == 0
    assert " within " in done.out
    assert "row_count_hint states" in done.out
    assert dpsql(*asked, "none").status == 2


def test_a_catalog_may_say_what_a_request_costs(dpsql: Run, adult: Path, workload: Path) -> None:
    text = adult.read_text()
    adult.write_text(text.replace("epsilon = 3.0", "epsilon = 3.0\ndefault_epsilon = 0.25"))
    assert "charged ε 0.25" in dpsql("run", workload, "--catalog", adult).err
    other = ["-e", "0.5", "-c", "SELECT race, COUNT(*) FROM adult GROUP BY race"]
    assert "charged ε 0.5" in dpsql(adult, *other).err
    adult.write_text(text.replace("epsilon = 3.0", "epsilon = 3.0\ndefault_epsilon = 4"))
    wrong = dpsql(adult, "-c", "SHOW epsilon")
    assert wrong.status == 2
    assert "default_epsilon" in wrong.err


def test_files_have_errors_unless_they_are_not_wanted(
    dpsql: Run, adult: Path, workload: Path
) -> None:
    common = ["run", workload, "--catalog", adult, "-e", "1"]
    assert dpsql(*common, "--out", "o").status == 0
    assert list(read_csv(Path("o/002_sex_people.csv"))[0]) == ["sex", "people", "people_stddev"]
    assert dpsql(*common, "--out", "p", "--no-stddev").status == 0
    assert list(read_csv(Path("p/002_sex_people.csv"))[0]) == ["sex", "people"]
    assert "stddev" not in dpsql(*common).out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--out", "taken"], "exists"),
        (["--out", "no/such/place"], "no folder"),
        (["--out", "/dev/null/x"], "cannot write"),
        (["--report", "taken/mine.txt"], "exists"),
        (["--report", "taken", "--force"], "folder"),
        (["--report", "no/such/r.html"], "no folder"),
        (["--format", "xls"], "unknown format"),
        (["--format", "parquet"], "--out"),
        (["--noise", "gaussian", "--delta", "0"], "E_DELTA"),
        (["--epsilon", "0,5"], "E_EPSILON"),
        (["--epsilon", "101"], "E_EPSILON"),
        (["--out", "fresh", "--delta", "nan"], "E_DELTA"),
    ],
)
def test_what_can_be_checked_is_checked_before_the_charge(
    dpsql: Run, adult: Path, workload: Path, arguments: list[str], word: str
) -> None:
    Path("taken").mkdir()
    Path("taken/mine.txt").write_text("mine")
    before = files_beside_the_ledger(adult)
    done = dpsql("run", workload, "--catalog", adult, "-e", "1", *arguments)
    assert done.status == 2
    assert word in done.err
    assert done.out == ""
    assert files_beside_the_ledger(adult) == before
    assert debits(dpsql, adult) == 0


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("SELECT COUNT(*) FROM adult; SELECT nope FROM adult;", 1),
        ("SELECT COUNT(*) FROM adult; DELETE FROM adult;", 1),
        ("", 1),
        ("-- nothing here\n", 1),
    ],
)
def test_a_refused_statement_refuses_the_whole_run(
    dpsql: Run, adult: Path, text: str, status: int
) -> None:
    Path("bad.sql").write_text(text)
    done = dpsql(
        "run", "bad.sql", "--catalog", adult, "-e", "1", "--out", "o", "--report", "r.html"
    )
    assert done.status == status
    assert not Path("o").exists()
    assert not Path("r.html").exists()
    assert debits(dpsql, adult) == 0


def test_over_budget_exits_5_and_leaves_nothing(dpsql: Run, adult: Path, workload: Path) -> None:
    done = dpsql("run", workload, "--catalog", adult, "-e", "3.5", "--out", "o")
    assert done.status == 5
    assert "Requested 3.5" in done.err
    assert not Path("o").exists()
    assert debits(dpsql, adult) == 0


def test_no_epsilon_is_a_usage_error(dpsql: Run, adult: Path, workload: Path) -> None:
    done = dpsql("run", workload, "--catalog", adult)
    assert done.status == 2
    assert "E_EPSILON" in done.err


def test_force_replaces_an_earlier_run_for_free(dpsql: Run, adult: Path, workload: Path) -> None:
    dpsql("run", workload, "--catalog", adult, "-e", "1", "--out", "o")
    done = dpsql(
        "run", workload, "--catalog", adult, "-e", "1", "--out", "o", "--force", "--format", "json"
    )
    assert done.status == 0
    assert "free" in done.err
    names = sorted(path.name for path in Path("o").iterdir())
    assert [name.rpartition(".")[2] for name in names] == ["json", "json", "json", "json", "md"]
    assert debits(dpsql, adult) == 1


def test_error_columns_and_parquet_files(dpsql: Run, adult: Path, workload: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    done = dpsql(
        "run", workload, "--catalog", adult, "-e", "1", "--out", "o",
        "--format", "parquet", "--stddev",
    )  # fmt: skip
    assert done.status == 0
    table = parquet.read_table("o/002_sex_people.parquet")
    assert table.column_names == ["sex", "people", "people_stddev"]
    assert table.num_rows == 2


def test_answers_that_cannot_be_delivered_are_still_paid_for(
    dpsql: Run, adult: Path, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_bytes", fail)
        full = dpsql("run", workload, "--catalog", adult, "-e", "1", "--out", "o")
    assert full.status == 2
    assert "no space left" in full.err
    assert "again costs nothing" in full.err
    assert not Path("o").exists()
    again = dpsql("run", workload, "--catalog", adult, "-e", "1", "--out", "o")
    assert again.status == 0
    assert "free" in again.err


@pytest.mark.parametrize(
    ("option", "text", "other"),
    [
        ("--epsilon", "SET epsilon = 2", "SET epsilon = 0.5"),
        ("--delta", "SET delta = 1e-7", "SET delta = 1e-9"),
        ("--noise", "SET noise = 'gaussian'", "SET noise = 'laplace'"),
        ("--effort", "SET effort = 2", "SET effort = 0.5"),
    ],
)
def test_a_file_that_sets_what_the_command_line_says_agrees_with_it(
    dpsql: Run, adult: Path, workload: Path, option: str, text: str, other: str
) -> None:
    """Else the file of somebody else would charge four times what its reader said."""
    said = other.split(" = ")[1].strip("'")
    always = ["--epsilon", "0.5"] if option != "--epsilon" else []
    command = ["run", workload, "--catalog", adult, option, said, *always, "--dry-run"]
    workload.write_text(f"{text};\n{WORKLOAD}")
    done = dpsql(*command[:-1])
    name = option.removeprefix("--")
    assert done.status == 1
    assert f"the file sets {name}, which is given beside it as" in done.err
    assert "[E_SETTING]\nline 1: SET " in done.err
    assert debits(dpsql, adult) == 0
    workload.write_text(f"{other};\nSET reuse = always;\n{WORKLOAD}")
    assert dpsql(*command).status == 0
    workload.write_text(f"{text};\n{WORKLOAD}")
    assert "E_SETTING" not in dpsql("run", workload, "--catalog", adult, *always, "--dry-run").err
