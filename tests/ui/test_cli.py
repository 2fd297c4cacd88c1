"""``dpsql CATALOG``: options, streams, exit status, and that refusals charge nothing."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsql.ui.budget import ACTS
from dpsql.ui.cli import SUBCOMMANDS
from dpsql.ui.serve import USER_ACTS

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

BY_SEX = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"
BY_RACE = "SELECT race, COUNT(*) AS n FROM adult GROUP BY race"


def charges(dpsql: Run, catalog: Path) -> list[dict[str, str]]:
    done = dpsql("ledger", catalog, "--format", "csv")
    assert done.status == 0
    return [row for row in csv.DictReader(io.StringIO(done.out)) if row["kind"] == "debit"]


def test_one_query_answers_on_stdout_and_narrates_on_stderr(dpsql: Run, adult: Path) -> None:
    done = dpsql(adult, "-e", "1", "-c", BY_SEX)
    rows = list(csv.reader(io.StringIO(done.out)))
    assert done.status == 0
    assert [row[0] for row in rows] == ["sex", "Female", "Male"]
    assert abs(float(rows[1][1]) - 16192) < 60
    assert "charged ε 1" in done.err
    assert "\x1b" not in done.out + done.err


def test_statements_of_one_text_are_charged_once_and_texts_run_in_order(
    dpsql: Run, adult: Path
) -> None:
    (adult.parent / "b.sql").write_text(BY_RACE)
    both = f"{BY_SEX} ORDER BY sex; {BY_SEX} ORDER BY sex DESC;"
    done = dpsql(adult, "--epsilon", "0.5", "-c", both, "-f", "b.sql", "-c", "SHOW epsilon")
    headers = [line for line in done.out.splitlines() if not line[-1:].isdigit()]
    assert done.status == 0
    assert headers[0] == "sex,n"
    assert done.out.index("race,n") > done.out.rindex("sex,n")
    assert done.out.index("epsilon\n0.5") > done.out.index("race,n")
    assert [row["epsilon"] for row in charges(dpsql, adult)] in (["0.5", "0.5"], ["1/2", "1/2"])


@pytest.mark.parametrize("arguments", [[], ["-f", "-"]])
def test_stdin_is_read_when_it_is_not_a_terminal(
    dpsql: Run, adult: Path, arguments: list[str]
) -> None:
    done = dpsql(adult, "-e", "1", *arguments, stdin=f".mode jsonl\n{BY_SEX};\n")
    assert done.status == 0
    assert json.loads(done.out.splitlines()[0])["sex"] == "Female"


def test_the_init_file_runs_first(dpsql: Run, adult: Path) -> None:
    (adult.parent / "rc").write_text("SET epsilon = 0.25;\n.mode markdown\n")
    done = dpsql(adult, "-init", "rc", "-c", BY_SEX)
    assert done.status == 0
    assert "ε 0.25" in done.err
    assert done.out.startswith("| sex")


def test_an_identical_question_is_free(dpsql: Run, adult: Path) -> None:
    first = dpsql(adult, "-e", "1", "-c", BY_SEX)
    second = dpsql(adult, "-e", "1", "-c", BY_SEX)
    assert first.out == second.out
    assert "free" in second.err
    assert len(charges(dpsql, adult)) == 1


@pytest.mark.parametrize(
    "text",
    ["-1", "0", "NaN", "inf", "1e-400", "1e309", "9223372036854775808", "0x10", "１", "0.1+0.2",
     "0,5", "", " ", "half", "1_0", "+1"],
)  # fmt: skip
def test_a_malformed_epsilon_is_a_usage_error(dpsql: Run, adult: Path, text: str) -> None:
    done = dpsql(adult, f"--epsilon={text}", "-c", BY_SEX)
    assert done.status == 2
    assert "[E_EPSILON]" in done.err
    assert done.out == ""
    assert charges(dpsql, adult) == []


@pytest.mark.parametrize("text", ["1", "NaN", "1e-2", "-1e-9", "1e-20", "x"])
def test_a_malformed_delta_is_a_usage_error(dpsql: Run, adult: Path, text: str) -> None:
    done = dpsql(adult, "-e", "1", f"--delta={text}", "-c", BY_SEX)
    assert done.status == 2
    assert "[E_DELTA]" in done.err


def test_gaussian_noise_needs_a_delta(dpsql: Run, adult: Path) -> None:
    done = dpsql(adult, "-e", "1", "--noise", "gaussian", "--delta", "0", "-c", BY_SEX)
    assert done.status in (1, 2)
    assert "[E_DELTA]" in done.err
    assert charges(dpsql, adult) == []


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT COUNT(*) FROM adlut", "E_UNKNOWN_TABLE"),
        ("SELECT sx, COUNT(*) FROM adult GROUP BY sx", "E_UNKNOWN_COLUMN"),
        ("SELECT COUNT(*) FROM adult WHERE sex = 'male'", "E_NOT_IN_DOMAIN"),
        ("DROP TABLE adult", "E_STATEMENT"),
        ("SELECT * FROM adult", "E_NO_AGGREGATE"),
        ("SELEC 1", "E_STATEMENT"),
        ("SELECT COUNT(* FROM adult", "E_PARSE"),
    ],
)
def test_a_refused_query_exits_1_with_a_caret_and_charges_nothing(
    dpsql: Run, adult: Path, sql: str, code: str
) -> None:
    done = dpsql(adult, "-e", "1", "-c", sql)
    assert done.status == 1
    assert f"[{code}]" in done.err
    assert "^" in done.err
    assert done.out == ""
    assert charges(dpsql, adult) == []


def test_over_budget_exits_5_and_says_by_how_much(dpsql: Run, adult: Path) -> None:
    assert dpsql(adult, "-e", "2", "-c", BY_SEX).status == 0
    done = dpsql(adult, "-e", "1.5", "-c", BY_RACE)
    assert done.status == 5
    for part in ("Requested 1.5", "Remaining", "Difference"):
        assert part in done.err
    assert done.out == ""
    assert len(charges(dpsql, adult)) == 1


def test_the_first_error_stops_unless_bail_is_off(dpsql: Run, adult: Path) -> None:
    text = f"SHOW nope;\n.mode csv\n{BY_SEX};\n"
    stopped = dpsql(adult, "-e", "1", stdin=text)
    assert (stopped.status, stopped.out) == (1, "")
    going = dpsql(adult, "-e", "1", stdin=".bail off\n" + text)
    assert going.status == 1
    assert "Female" in going.out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--nonsense"],
        ["nothing.toml", "-c", "SHOW budget"],
        ["{adult}", "--format", "xls", "-c", "SHOW budget"],
        ["{adult}", "-f", "nothing.sql"],
        ["{adult}", "-init", "nothing.sql", "-c", "SHOW budget"],
        ["{adult}", "--noise", "white", "-c", "SHOW budget"],
        ["{adult}", "surplus"],
        ["run"],
        ["run", "nothing.sql", "--catalog", "{adult}", "-e", "1"],
        ["ledger", "nothing.toml"],
    ],
)
def test_usage_and_catalog_errors_exit_2(dpsql: Run, adult: Path, arguments: list[str]) -> None:
    done = dpsql(*[argument.replace("{adult}", str(adult)) for argument in arguments])
    assert done.status == 2
    assert done.out == ""
    assert "error: " in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", [*SUBCOMMANDS, "user"])
def test_a_misspelt_command_is_not_taken_for_a_catalog(
    dpsql: Run, adult: Path, command: str
) -> None:
    acts = {"ledger": ACTS, "user": USER_ACTS}.get(command, {})
    lines = [((), command), *(((command,), act) for act in acts)]
    for before, word in lines:
        swapped = word[0] + word[2] + word[1] + word[3:]
        for wrong in (word[:-1], swapped, f"{word}s", word.upper()):
            if {wrong} & {*SUBCOMMANDS, *acts, "user", word}:
                continue
            for more in ([], [str(adult)], [str(adult), "ana"]):
                done = dpsql(*before, wrong, *more)
                assert (done.status, done.out) == (2, "")
                assert f"or catalog '{wrong}' [E_USAGE]\nhint: " in done.err
                assert f"did you mean {word}?" in done.err or wrong == word.upper()


def test_a_word_that_is_no_command_is_told_the_commands_or_the_catalog(
    dpsql: Run, adult: Path
) -> None:
    assert "hint: did you mean adult.toml?" in dpsql("adult").err
    assert "hint: commands: run, init, check, ledger, upgrade, serve, user" in dpsql("nothing").err
    assert "hint: acts: add, passwd, remove, list" in dpsql("user", "nothing", adult).err
    assert "error: name an act" in dpsql("user").err
    shutil.copy(adult, "plain")
    assert dpsql("plain", "-c", "SHOW budget").status == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--versio"],
        ["{adult}", "surplus"],
        ["{adult}", "-c"],
        ["{adult}", "-q"],
        *([name, "--nonsense"] for name in SUBCOMMANDS),
        *(["ledger", act, "--nonsense"] for act in ACTS),
        *(["user", act] for act in USER_ACTS),
        ["run", "x.sql"],
        ["ledger", "{adult}", "--by", "year"],
        ["serve", "{adult}", "--sessions", "0"],
        ["user"],
        ["."],
        [""],
        ["/"],
        ["init", "adult.parquet", "-o", "."],
        ["run", "x.sql", "--catalog", "."],
    ],
)
def test_every_usage_error_has_a_code_and_a_subject(
    dpsql: Run, adult: Path, arguments: list[str]
) -> None:
    done = dpsql(*[argument.replace("{adult}", str(adult)) for argument in arguments])
    assert (done.status, done.out) == (2, "")
    assert re.search(r"^error: [^: ].* \[E_[A-Z]+\]$", done.err, re.MULTILINE)
    assert "Error)" not in done.err
    assert "it exists" not in done.err


@pytest.mark.parametrize(
    ("data", "why"), [(b"\xff", "byte 1 is not UTF-8"), (None, "is a directory")]
)
def test_a_catalog_that_cannot_be_read_says_why(
    dpsql: Run, tmp_path: Path, data: bytes | None, why: str
) -> None:
    path = tmp_path / "any.toml"
    path.mkdir() if data is None else path.write_bytes(data)
    assert f"any.toml: cannot be read: {why} [E_POLICY]" in dpsql(path).err


def test_a_broken_catalog_names_what_is_wrong(dpsql: Run, adult: Path) -> None:
    adult.write_text(adult.read_text().replace("[budget]", "[budget]\nepsilom = 1"))
    done = dpsql(adult, "-c", "SHOW budget")
    assert done.status == 2
    assert "[E_POLICY]" in done.err
    assert "epsilom" in done.err


def test_missing_data_exits_3_and_charges_nothing(dpsql: Run, adult: Path) -> None:
    (adult.parent / "adult.parquet").unlink()
    done = dpsql(adult, "-e", "1", "-c", BY_SEX)
    assert done.status == 3
    assert charges(dpsql, adult) == []


def test_a_missing_ledger_exits_3(dpsql: Run, adult: Path) -> None:
    assert dpsql(adult, "-e", "1", "-c", BY_SEX).status == 0
    adult.with_suffix(".ledger").unlink()
    done = dpsql(adult, "-e", "1", "-c", BY_SEX)
    assert done.status == 3
    assert "[E_LEDGER_MISSING]" in done.err


def test_echoed_text_cannot_drive_the_terminal(dpsql: Run, adult: Path) -> None:
    for arguments in (
        [adult, "-c", "SELECT\n \x1b]0;owned\x07 FROM adult"],
        [adult, "-c", "SELECT \x9b31m FROM adult"],
        [adult, "-c", ".\x1b[31m"],
        [adult, "--format", "\x1b[2J", "-c", "SHOW budget"],
        ["\x1b[2J.toml", "-c", "SHOW budget"],
        [adult, "\x1b[2J"],
        [adult, "-f", "\x1b[2J.sql"],
        [adult, "-e", "\x1b[2J", "-c", "SHOW budget"],
        [adult, "--noise", "\x1b[2J", "-c", "SHOW budget"],
        ["run", "\x1b[2J", "--catalog", adult, "-e", "1", "--out", "\x1b[2J/x"],
    ):
        done = dpsql(*arguments)
        assert done.status in (1, 2)
        assert not any(c in done.out + done.err for c in "\x1b\x07\x9b"), arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ["init", "adult.parquet", "-o", "-"],
        ["run", "few.sql", "--catalog", "adult.toml", "-e", "1", "--out", "-"],
        ["run", "few.sql", "--catalog", "adult.toml", "-e", "1", "--report", "-"],
        ["ledger", "adult.toml", "--html", "-"],
        ["adult.toml", "-e", "1", "-c", ".output -", "-c", BY_SEX],
    ],
    ids=lambda arguments: " ".join(arguments[:1]),
)
def test_no_file_is_called_a_dash(dpsql: Run, adult: Path, arguments: list[str]) -> None:
    (adult.parent / "few.sql").write_text(f"{BY_SEX};\n")
    done = dpsql(*arguments)
    assert not (adult.parent / "-").exists()
    assert done.out if done.status == 0 else "E_OUTPUT" in done.err


def test_init_drafts_a_catalog_and_does_not_overwrite(dpsql: Run, adult: Path) -> None:
    draft = dpsql("init", "adult.parquet")
    assert draft.status == 0
    assert "[table.adult" in draft.out
    assert dpsql("init", "adult.parquet", "-o", "new.toml").status == 0
    assert Path("new.toml").read_text() == draft.out
    again = dpsql("init", "adult.parquet", "-o", "adult.toml")
    assert again.status == 2
    assert "--force" in again.err
    assert dpsql("init", "adult.parquet", "-o", "new.toml", "--force").status == 0
    missing = dpsql("init", "nothing.parquet", "-o", "other.toml")
    assert missing.status in (2, 3)
    assert not Path("other.toml").exists()


def test_ledger_shows_the_budget_and_every_charge(dpsql: Run, adult: Path) -> None:
    dpsql(adult, "-e", "0.5", "-c", BY_SEX)
    done = dpsql("ledger", adult)
    assert done.status == 0
    assert "remaining  ε 2.5" in done.err
    assert "total      ε 3, δ 1e-9" in done.err
    assert len(charges(dpsql, adult)) == 1


def test_a_reader_that_goes_away_is_no_error(adult: Path) -> None:
    command = f"{sys.executable} -m dpsql {adult} -e 1 -c '{BY_SEX}' | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told(adult: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dpsql", str(adult), "-e", "1", "-c", BY_SEX],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 2
    assert "no space left on device [E_OUTPUT]" in done.stderr
    assert "asked again it is free" in done.stderr
    assert "Traceback" not in done.stderr


def test_odd_streams_are_survived(adult: Path) -> None:
    command = [sys.executable, "-m", "dpsql", str(adult), "-e", "1", "--format", "box"]
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*command, "-c", BY_SEX], capture_output=True, env=latin, timeout=60)
    assert done.returncode == 0
    assert b"+/-" in done.stdout
    assert b"epsilon 1" in done.stderr
    shell = " ".join(command)
    closed = subprocess.run(f"{shell} <&-", shell=True, capture_output=True, timeout=60)
    assert closed.returncode == 0
    assert subprocess.run(f"{shell} -c 'SHOW noise' >&-", shell=True, timeout=60).returncode == 2


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("asked", ["--version", "-c 'SELEC'"])
def test_streams_that_are_closed_from_the_start_leave_no_traceback(
    adult: Path, streams: str, asked: str
) -> None:
    catalog = "" if asked.startswith("--") else str(adult)
    shell = f"{sys.executable} -m dpsql {catalog} {asked} {streams}"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1, 2)
    assert ("stdout is closed" in done.stderr) == (streams in (">&-", "<&- >&-"))
    assert "Traceback" not in done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr
