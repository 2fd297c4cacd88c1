"""One sitting at the prompt, in which much happens: state that outlives a statement."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.ui.test_repl import COUNT, Terminal

pytestmark = pytest.mark.slow


def test_results_files_pager_and_editor(adult: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = adult.parent / "editor.py"
    script.write_text("import sys; open(sys.argv[1], 'w').write('SHOW noise;')")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    opened = Terminal(adult, "xterm-256color", "-e", "0.5", size=(40, 80))
    opened.see("adult ε 3>")
    opened.enter(f"{COUNT[:-1]} ORDER BY 1;")
    opened.see("Female", "charged", "ε 2.5>")
    opened.enter("SELECT age, COUNT(*) AS n FROM adult GROUP BY age;")
    opened.see("·", "74 rows (40 shown)", "charged", "ε 2>")
    opened.enter(".once all.csv")
    opened.see("goes to all.csv", "ε 2>")
    opened.enter(".last")
    opened.see("written to all.csv", "ε 2>")
    opened.enter(".maxrows 2")
    opened.see("maxrows 2", "ε 2>")
    opened.enter(".schema")
    opened.see("14 rows (2 shown)", "ε 2>")
    opened.enter(".pager 'head -n 5'")
    opened.see("pager head -n 5", "ε 2>")
    opened.enter(".last")
    opened.see("│ age", "│ workclass", "ε 2>")
    opened.enter(".pager no-such-pager")
    opened.see("pager no-such", "ε 2>")
    opened.enter(".schema")
    opened.see("cannot be run", "14 rows (2 shown)", "ε 2>")
    opened.enter(".edit")
    opened.see("SHOW noise;")
    opened.enter("")
    opened.see("auto", "ε 2>")
    opened.enter(
        "SELECT COUNT(*) AS n FROM adult WHERE sex = 'Female' AND age < 30 AND sexx = 'M';"
    )
    opened.see("E_UNKNOWN_COLUMN", "line 1: ...", "^^^^", "ε 2>")
    assert opened.leave() == 0
    assert len(Path("all.csv").read_text().splitlines()) == 78
