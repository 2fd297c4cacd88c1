"""Lines of JSON: each is an object, whose members are the values of a row.

What is no member of an object is missing there. Columns are those that are declared, since no line
says which there are. Members that are objects or lists are their text.

Guarantee: what is read of a line follows from this line alone. A line that is not one object, in
the declared encoding and of at most 16 MiB, is no row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dpsql.catalog.delimited import PLAIN, Delimited
from dpsql.privacy.vault.files.arrow_rows import ROWS
from dpsql.privacy.vault.files.lines import NO_OBJECT, blocks
from dpsql.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class ObjectLines:
    """The rows of a file of lines."""

    path: str
    written: Delimited

    @property
    def schema(self) -> pa.Schema:
        """See :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows`."""
        return pa.schema([(name, pa.large_string()) for name in self.written.header])

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows`."""
        schema = pa.schema([(name, pa.large_string()) for name in names])
        for block in blocks(self.path, self.written):
            objects = [
                each for line in block.split(b"\n") if (each := read_object(line)) is not None
            ]
            for start in range(0, len(objects), ROWS):
                some = objects[start : start + ROWS]
                arrays = [
                    pa.array([_text(each.get(name)) for each in some], pa.large_string())
                    for name in names
                ]
                yield pa.record_batch(arrays, schema)


MOST = 2000
"""Lines that are looked at for a draft."""


def open_file(path: str, named: str, written: Delimited) -> ObjectLines:
    """Open a file of lines, the columns of which are declared as its header.

    Args: as those of :func:`dpsql.privacy.vault.files.arrow_rows.open_rows`.

    Raises: OSError.
    """
    with open(path, "rb"):
        return ObjectLines(path, replace(written, header=written.header or ("value",)))


def read_object(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line; None where it is none.

    >>> read_object(b'{"a": 1.50}'), read_object(b"[1]"), read_object(b'{"a"')
    ({'a': '1.50'}, None, None)
    """
    try:
        found = json.loads(line.decode(), parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def names_of_lines(path: str) -> tuple[str, ...]:
    """Return the names of members that the first lines have, for a draft. Raises: OSError."""
    found: dict[str, None] = {}
    for block in blocks(path, replace(PLAIN, header=("value",))):
        for line in block.split(b"\n", MOST)[:MOST]:
            found |= dict.fromkeys(read_object(line) or {})
        break
    return tuple(each for each in found if each.isprintable()) or ("value",)


def find_unread(path: str, written: Delimited) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a file that are no rows, but for blank ones: number, column, and why."""
    number = 1 + written.skip
    for block in blocks(path, replace(written, header=("value",))):
        lines = block.split(b"\n")
        for i, line in enumerate(lines):
            if line.strip() and read_object(line) is None:
                yield number + i, _place(line), NO_OBJECT
        number += len(lines)


def _place(line: bytes) -> int:
    """Say at which character, from 1 on, a line stops being an object."""
    try:
        json.loads(line.decode())
    except json.JSONDecodeError as error:
        return error.pos + 1
    except (ValueError, RecursionError):
        pass
    return 1


def _text(value: Any) -> str | None:
    match value:
        case None | str():
            found = value or None
        case bool():
            found = "true" if value else "false"
        case _:
            found = json.dumps(value, ensure_ascii=False)
    # half of a pair of surrogates is no text
    return found and found.encode("utf-8", "replace").decode()
