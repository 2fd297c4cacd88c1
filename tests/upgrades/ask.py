"""Ask every statement of the corpus once; run by whichever version of dpsql is on the path.

It uses nothing but what every version has. Files are known by their names, so that the version of
the data is the same wherever they lie.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import dpsql

HERE = Path(__file__).parent
CATALOG = "clinic.toml"


def facts(path: str) -> list[str | int]:
    """What is known of a file of the data, in place of its path, size and time."""
    return [os.path.basename(path), 0, 0]


def known_by_name() -> Any:
    """Know the files of the data by their names."""
    return mock.patch("dpsql.privacy.vault.data_engine._file_facts", facts)


def statements() -> list[str]:
    """The statements of the corpus."""
    return [each.strip() for each in (HERE / "asked.sql").read_text().split(";")]


def main(folder: Path) -> None:
    """Ask in a folder with the catalog and the data; write what was answered, and from where."""
    answered = []
    with known_by_name():
        for sql in statements():
            with dpsql.connect(folder / CATALOG, epsilon=1) as connection:
                result = connection.execute(sql).result
                free = result.cost is None or result.cost.free
                answered.append([sql, free, json.loads(json.dumps(result.rows, default=str))])
    (folder / "answered.json").write_text(json.dumps(answered))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
