"""The commands of the prompt, through scripts on stdin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import UsageError
from dpsql.ui.command import COMMANDS, STATEMENTS, find_command
from dpsql.ui.streams import split_input

Run = Callable[..., Any]

COUNT = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"


def test_help_lists_every_command_with_its_aliases(dpsql: Run, adult: Path) -> None:
    done = dpsql(adult, stdin=".help\n")
    assert done.status == 0
    for entry in COMMANDS.values():
        assert entry.help in done.err
        assert all(alias in done.err for alias in (entry.name, *entry.aliases))
    assert dpsql(adult, stdin=".help .plot\n").err.count("\n") == 1


def test_commands_are_found_by_name_alias_and_beginning() -> None:
    assert find_command("\\timing").name == ".timer"
    assert find_command(".bud").name == ".budget"
    with pytest.raises(UsageError, match="unknown command") as caught:
        find_command(".budgte")
    assert ".budget" in (caught.value.hint or "")


@pytest.mark.parametrize("word", STATEMENTS)
def test_statements_with_a_dot_are_told_that_sql_has_none(word: str) -> None:
    with pytest.raises(UsageError, match="unknown command") as caught:
        find_command(f".{word}")
    assert caught.value.hint == f"SQL has no dot: {word.upper()} ...;"


def test_commands_stand_where_a_statement_could_start() -> None:
    text = ".mode csv\nSELECT 1;\n\\x on\nSELECT '\n.not a command\n';\nSELECT 2"
    assert split_input(text) == [
        ".mode csv", "SELECT 1;\n", "\\x on", "SELECT '\n.not a command\n';\nSELECT 2",
    ]  # fmt: skip
    assert split_input("-- nothing\n;\n.mode csv\n/* nothing */") == [".mode csv"]


def test_tables_schema_and_ledger_show_public_facts(dpsql: Run, adult: Path) -> None:
    done = dpsql(adult, stdin=".tables\n\\d\n.schema ADULT\n.ledger\n.budget\n")
    assert done.status == 0
    assert done.out.count("marital_status") == 2
    assert "row" in done.out
    assert "remaining  ε 3" in done.err
    unknown = dpsql(adult, stdin=".schema nothing\n")
    assert (unknown.status, unknown.out) == (1, "")
    assert "E_UNKNOWN_TABLE" in unknown.err


def test_values_of_a_column_are_listed(dpsql: Run, adult: Path) -> None:
    done = dpsql(adult, stdin=".values sex\n.values adult.native_country un\n")
    assert done.out == "sex\nFemale\nMale\n" + "native_country\nUnited-States\n"
    for line, told in [
        (".values", "takes a column"),
        (".values nothing", "no column 'nothing' in any table"),
        (".values adult.sx", "did you mean sex?"),
        (".values no.sex", "no table 'no'"),
        (".values capital_gain", "measure, clipped to 0 to 99999"),
    ]:
        done = dpsql(adult, stdin=f"{line}\n")
        assert told in done.err
        assert done.status in (1, 2)


def test_output_writes_files_and_does_not_overwrite(dpsql: Run, adult: Path) -> None:
    done = dpsql(
        adult, "-e", "0.1", stdin=f".mode json\n.output n.json\n{COUNT};\n.output\nSHOW epsilon;\n"
    )
    assert done.status == 0
    assert json.loads(Path("n.json").read_text())[0]["sex"] == "Female"
    assert "Female" not in done.out
    assert "0.1" in done.out
    taken = dpsql(adult, "-e", "0.2", stdin=f".output n.json\n{COUNT};\n")
    assert taken.status == 2
    assert "--force" in taken.err
    assert "charged" not in taken.err
    assert dpsql(adult, stdin=".output n.json --force\n").status == 0
    assert dpsql(adult, stdin=".output no/such/file\n").status == 2


def test_one_parquet_file_holds_one_result(dpsql: Run, adult: Path) -> None:
    pytest.importorskip("pyarrow")
    two = f".mode parquet\n.output n.parquet\nSET epsilon = 0.1;\n{COUNT};\n{COUNT} ORDER BY 1;\n"
    refused = dpsql(adult, stdin=two)
    assert refused.status == 2
    assert "holds one result" in refused.err
    assert "charged" not in refused.err
    one = dpsql(adult, "-e", "0.1", "--format", "parquet", stdin=f".output m.parquet\n{COUNT};\n")
    assert one.status == 0
    assert Path("m.parquet").read_bytes()[:4] == b"PAR1"


def test_read_runs_a_file_as_one_workload(dpsql: Run, adult: Path) -> None:
    Path("two.sql").write_text(f"{COUNT};\nSELECT COUNT(*) FROM adult;")
    done = dpsql(adult, "-e", "0.1", stdin=".read two.sql\n")
    assert done.status == 0
    assert done.err.count("charged") == 1
    Path("loop.sql").write_text(".read loop.sql\n")
    looped = dpsql(adult, stdin=".read loop.sql\n")
    assert looped.status == 2
    assert "deep" in looped.err


def test_explain_is_free_and_timer_tells_the_time(dpsql: Run, adult: Path) -> None:
    done = dpsql(adult, "-e", "0.1", stdin=f".timer on\n.explain {COUNT};\nSHOW epsilon;\n")
    assert done.status == 0
    assert "expected" in done.err
    assert "charged" not in done.err
    assert "time: 0." in done.err


def test_plot_goes_to_stdout(dpsql: Run, adult: Path) -> None:
    done = dpsql(adult, "-e", "0.1", stdin=f"{COUNT};\nSHOW epsilon;\n.plot n\n.plot sex\n")
    assert done.status == 1
    assert "n (whiskers: 95 % interval)\nFemale" in done.out
    assert "no noisy column 'sex'" in done.err


def test_expanded_shows_one_line_per_column(dpsql: Run, adult: Path) -> None:
    done = dpsql(adult, "-e", "0.1", stdin=f"\\x\n{COUNT};\n")
    assert "sex = Female\n" in done.out


@pytest.mark.parametrize(
    "line", [".timer maybe", ".read", ".read 'x", ".mode xls", ".output a b", ".workload go",
             ".explain", ".nope"],
)  # fmt: skip
def test_a_wrong_argument_is_told(dpsql: Run, adult: Path, line: str) -> None:
    done = dpsql(adult, stdin=line + "\n")
    assert done.status == 2
    assert "error: " in done.err


def test_a_fault_of_dpsql_is_told_without_its_text(
    dpsql: Run, adult: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ValueError("secret 42")

    monkeypatch.setattr("dpsql.dbapi.connection.Connection.executescript", fail)
    done = dpsql(adult, "-c", COUNT)
    assert done.status == 3
    assert "ValueError" in done.err
    assert "secret" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing(adult: Path, number: int, status: int) -> None:
    Path("slow.sql").write_text(COUNT)
    slow = (
        "import sys, time\nfrom dpsql.dbapi import connection as dbapi\n"
        "def wait(*arguments):\n    print('waiting', flush=True)\n    time.sleep(60)\n"
        "dbapi.Connection.explain = wait\n"
        "sys.argv = ['dpsql', 'run', 'slow.sql', '--catalog', 'adult.toml', '-e', '1',"
        " '--out', 'o', '--report', 'r.html']\n"
        "from dpsql.__main__ import main\nmain()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert any(name.startswith(".dpsql-partial-") for name in os.listdir("."))
    time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == status
    assert "Traceback" not in errors
    assert not [n for n in os.listdir(".") if n in ("o", "r.html") or n[0] == "."]
