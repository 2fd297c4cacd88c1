"""``%%dpsql`` and what a notebook shows of errors."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import dpsql
from dpsql.answer.result import Result
from dpsql.engine.explanation import Explanation
from dpsql.errors import InternalError, Interrupted
from dpsql.integrations import notebook
from tests.support.pages import DOCS, blocks

interactiveshell: Any = import_module("IPython.core.interactiveshell")
CATALOG = """
[budget]
epsilon = 5.0
delta = 0
[table.people]
source = "people.csv"
privacy_unit = "row"
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text("sex\n" + "f\nm\nm\n" * 9)
    (tmp_path / "people.toml").write_text(CATALOG)
    return tmp_path / "people.toml"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A shell of IPython with dpsql loaded, without a history."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    made = interactiveshell.InteractiveShell
    made.clear_instance()
    config = interactiveshell.Config() if hasattr(interactiveshell, "Config") else None
    found = made.instance(config=config)
    found.history_manager.enabled = False
    found.run_line_magic("load_ext", "dpsql")
    yield found
    held = found.find_magic("dpsql").__self__.connection
    if held is not None:
        held.close()
    found.history_manager.end_session()
    made.clear_instance()


def test_the_cells_of_the_guide_run(
    shell: Any, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(demo)
    (block,) = blocks(DOCS / "python.md", "")
    with mock.patch("dpsql.integrations.magic.display"):
        for cell in block.split("\n\n"):
            assert shell.run_cell(cell).success
    assert shell.user_ns["counts"].columns == ("education", "income", "n")


def test_a_cell_is_a_workload(shell: Any, catalog: Path) -> None:
    shell.run_line_magic("dpsql", f"{catalog} -e 0.5")
    cell = "SELECT COUNT(*) AS n FROM people; SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"
    with mock.patch("dpsql.integrations.magic.display") as shown:
        found = shell.run_cell_magic("dpsql", "", cell)
    assert isinstance(found, Result)
    assert len(found.rows) == 2
    assert [call.args[0].columns for call in shown.call_args_list] == [("n",)]
    connection = shell.find_magic("dpsql").__self__.connection
    assert connection.budget.entries == 1
    assert shell.run_cell_magic("dpsql", "-o kept -e 0.25", "SELECT COUNT(*) FROM people") is None
    assert shell.user_ns["kept"].rows
    assert connection.settings["epsilon"] == "0.25"
    forecast = shell.run_cell_magic("dpsql", "--explain", "SELECT COUNT(*) AS n FROM people")
    assert isinstance(forecast, Explanation)
    assert repr(forecast).startswith("workload")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--frog", "unrecognized arguments: --frog"),
        ("-e", "expected one argument"),
        ("'open", r"No closing quotation \[E_SETTING\]\nhint: "),
        ("-o 'a b'", "'a b' is no name of a variable"),
        ("-o 2n", "'2n' is no name of a variable"),
        ("-o class", "'class' is no name of a variable"),
        ("nowhere.toml", "there is no such file"),
        ("", "has no catalog yet"),
    ],
)
def test_wrong_words_are_errors_like_any_other(shell: Any, line: str, said: str) -> None:
    with pytest.raises(dpsql.Error, match=said):
        shell.run_cell_magic("dpsql", line, "SELECT COUNT(*) FROM people")


def test_a_refused_epsilon_keeps_the_catalog_closed(shell: Any, catalog: Path) -> None:
    with pytest.raises(dpsql.DataError, match="E_EPSILON"):
        shell.run_line_magic("dpsql", f"{catalog} -e frog")
    with pytest.raises(dpsql.ProgrammingError, match="has no catalog yet"):
        shell.run_cell_magic("dpsql", "", "SELECT COUNT(*) FROM people")


def test_a_typo_is_four_lines(
    shell: Any, catalog: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("dpsql", str(catalog))
    shell.run_cell("%%dpsql -e 1\nSELECT COUNT(*) FROM peple")
    told = capsys.readouterr()
    lines = (told.out + told.err).strip().splitlines()
    assert len(lines) == 4
    assert (
        lines[0] == "ProgrammingError: there is no table 'peple' in the catalog [E_UNKNOWN_TABLE]"
    )
    assert lines[3] == "hint: did you mean people?"


def test_a_defect_keeps_its_calls_and_an_interrupt_its_words() -> None:
    with pytest.raises(InternalError) as caught:
        raise InternalError("E_UNEXPECTED", "dpsql failed")
    assert "Traceback" in caught.value._render_traceback_()[0]
    assert Interrupted()._render_traceback_() == [str(Interrupted())]


def test_progress_is_a_line_that_changes(shell: Any) -> None:
    assert notebook.progress() is None
    shell.kernel = object()
    tell = notebook.progress()
    assert tell is not None
    with mock.patch("IPython.display.display") as shown:
        tell("round 1")
        tell("round 2")
        assert len(shell.events.callbacks["post_run_cell"]) == 1
        shell.events.trigger("post_run_cell", None)
        tell("round 3")
        shell.events.trigger("post_run_cell", None)
    assert [call.args[0]["text/plain"] for call in shown.call_args_list] == ["round 1", "round 3"]
    updates = [call.args[0]["text/plain"] for call in shown.return_value.update.call_args_list]
    assert updates == ["round 2", "", ""]
    assert shell.events.callbacks["post_run_cell"] == []
    del shell.kernel
