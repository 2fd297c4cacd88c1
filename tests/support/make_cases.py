"""Make the notes of grammar/accepted.sql and grammar/rejected.sql anew."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from tests.support.grammar import GRAMMAR, accepted_notes, rejected_notes, write_cases
from tests.support.oracle import open_world


def main() -> None:
    """Write both files."""
    with tempfile.TemporaryDirectory() as folder, open_world(Path(folder), []) as (connection, _):
        for name, notes in (("accepted.sql", accepted_notes), ("rejected.sql", rejected_notes)):
            text = write_cases(name, partial(notes, connection))
            (GRAMMAR / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
