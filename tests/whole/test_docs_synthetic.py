"""The examples of docs/synthetic.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dpsql

TEXT = (Path(__file__).parents[2] / "docs" / "synthetic.md").read_text("utf-8")


def test_the_examples_run(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (demo / "own").mkdir()
    (example,) = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
    with dpsql.connect(demo / "adult.toml", files=demo / "own") as connection:
        cursor = connection.executescript(example)
        names = [cursor.result.columns]
        while cursor.nextset():
            names.append(cursor.result.columns)
        assert names == [("explain",), ("synthetic", "people"), ("sex", "n"),
                         ("education", "percent"), ()]  # fmt: skip
        (looks,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
        exec(looks, {"connection": connection})
        assert "1/50 [" in capsys.readouterr().out
        assert [e.epsilon for e in connection.entries() if e.kind == "debit"] == ["1"]
    assert len((demo / "own" / "people.csv").read_text().splitlines()) == 1001
