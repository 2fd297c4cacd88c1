"""A notebook, run by a real kernel: progress, tables, pictures and errors as they are displayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.integrations.test_magic import CATALOG

CELLS = (
    "%load_ext dpsql\n%dpsql people.toml -e 0.5",
    "%%dpsql\nSELECT COUNT(*) AS n FROM people;\n"
    "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
    "_.plot();",
    "%%dpsql --explain\nSELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
    "%%dpsql\nSELECT sexx FROM people",
    "import dpsql.engine.progress as outlook\noutlook.EVERY = 0.0",
    "%%dpsql\nSELECT COUNT(*) FILTER (WHERE age < 7) AS a, COUNT(*) FILTER (WHERE age > 3) AS b "
    "FROM people",
    "import duckdb\nduckdb.connect().execute(\"SELECT current_setting('enable_progress_bar')\")"
    ".fetchall()",
)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The cells of a small notebook after it has been run."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "people.csv").write_text("sex,age\n" + "f,3\nm,5\nm,9\n" * 9)
    (folder / "people.toml").write_text(CATALOG + 'age = { type = "integer", domain = [0, 9] }\n')
    made: Any = nbformat.v4
    notebook = made.new_notebook(cells=list(map(made.new_code_cell, CELLS)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        patch.setenv("PYTHONWARNINGS", "ignore")  # the kernel's own
        NotebookClient(notebook, timeout=300, allow_errors=True, kernel_name="python3").execute(
            cwd=str(folder)
        )
    return list(notebook.cells)


def shown(cell: Any) -> list[dict[str, str]]:
    """What a cell displays, by kind."""
    return [dict(each["data"]) for each in cell.outputs if "data" in each]


def test_a_cell_displays_all_its_results(cells: list[Any]) -> None:
    assert cells[0].outputs == []
    first, second = [each for each in shown(cells[1]) if "text/html" in each]
    assert "&plusmn;" in first["text/html"]
    assert second["text/html"].count("<tr>") == 3
    assert "cost: epsilon 0.5" in second["text/plain"]


def test_a_picture_is_displayed(cells: list[Any]) -> None:
    assert any("image/png" in each for each in shown(cells[2]))


def test_a_forecast_is_a_table(cells: list[Any]) -> None:
    (forecast,) = shown(cells[3])
    assert "strategy" in forecast["text/html"]
    assert forecast["text/plain"].startswith("workload")


def test_a_refusal_is_four_lines(cells: list[Any]) -> None:
    (output,) = cells[4].outputs
    assert output["ename"] == "ProgrammingError"
    lines = "\n".join(output["traceback"]).splitlines()
    assert lines[0].startswith("ProgrammingError: there is no column 'sexx'")
    assert lines[-1] == "hint: did you mean sex?"
    assert len(lines) == 4


def test_progress_is_told_and_gone_at_the_end(cells: list[Any]) -> None:
    line, result = shown(cells[6])
    assert line == {"text/plain": ""}
    assert "&plusmn;" in result["text/html"]
    assert not any("planning" in str(cell.outputs) for cell in cells)


def test_no_bar_tells_how_many_rows_there_are(cells: list[Any]) -> None:
    assert not any("Widget" in str(cell.outputs) for cell in cells)
    assert shown(cells[7])[0]["text/plain"] in ("[(False,)]", "[(True,)]")
