"""A file that may be a codebook: parsed by the end of its name, and read by the format that it is.

Faults are told with line and column; a codebook is public.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import pkgutil
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from xml.etree import ElementTree

import dpsql.catalog.codebooks
from dpsql.catalog.codebook import BookColumn, Codebook
from dpsql.errors import UsageError, printable

LARGEST = 1 << 26
"""Bytes of a codebook, which is held in memory."""
DEEPEST = 100
"""Nested brackets of a document, more than any format has."""
Found = Iterable[tuple[str, str, BookColumn]]
"""Columns as (table, name, what is said of them); a table without a name is ""."""


class BookFormat(Protocol):
    """A format of codebooks; see :mod:`dpsql.catalog.codebooks`."""

    NAME: str
    SYNTAX: str

    def read(self, parsed: Any) -> Found:
        """Yield the columns of a codebook."""


class Fault(Exception):
    """A fault of a codebook, as words that follow "the codebook 'x'"."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        place = f", line {line}, column {column}" if line else ""
        super().__init__(f"{problem}{place}")


@cache
def formats() -> tuple[BookFormat, ...]:
    """Return the formats of codebooks, by the names of their modules."""
    inside = (each.name for each in pkgutil.iter_modules(dpsql.catalog.codebooks.__path__))
    found = (import_module(f"dpsql.catalog.codebooks.{name}") for name in sorted(inside))
    return tuple(each for each in found if hasattr(each, "SYNTAX"))


def known() -> str:
    """Return the words for the formats that are known."""
    return f"known are {'; '.join(each.NAME for each in formats())}"


def read_codebook(path: str | Path) -> Codebook:
    """Read the columns that a codebook describes.

    Raises: UsageError (E_DATA) for a file that is no codebook.
    """
    name = printable(Path(path).name)
    try:
        syntax, parse = SYNTAXES.get(Path(path).suffix.lower(), SYNTAXES[".json"])
        parsed = parse(_bytes(Path(path)))
        for each in formats():
            found = list(each.read(parsed)) if syntax == each.SYNTAX else []
            if found:
                return _collected(found)
        problem = "describes no column"
    except FileNotFoundError:
        raise UsageError("E_DATA", f"there is no codebook {name!r}", hint=known()) from None
    except OSError:
        problem = "cannot be read"
    except Fault as error:
        problem = str(error)
    except (RecursionError, OverflowError):
        problem = "is nested too deeply, or has a number beyond any"
    raise UsageError("E_DATA", f"the codebook {name!r} {problem}", hint=known())


def _collected(found: Found) -> Codebook:
    tables: dict[str, dict[str, BookColumn]] = {}
    for table, column, said in found:
        tables.setdefault(table.casefold(), {})[column.casefold()] = said
    return Codebook(tables)


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise Fault(f"has more than {LARGEST >> 20} MiB")
    if not raw.strip():
        raise Fault("is empty")
    return raw


def _decoded(raw: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 where it says so. Raises: Fault."""
    encoding = "utf-16" if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        before = raw[: error.start]
    column = len(before.rpartition(b"\n")[2].decode(errors="replace")) + 1
    raise Fault("is no text in UTF-8", before.count(b"\n") + 1, column)


def _parse_json(raw: bytes) -> Any:
    try:
        return json.loads(_decoded(raw))
    except json.JSONDecodeError as error:
        problem, line, column = f"is no JSON: {error.msg}", error.lineno, error.colno
    except ValueError:
        raise Fault("has a number of too many digits") from None
    raise Fault(problem, line, column)


def _parse_yaml(raw: bytes) -> Any:
    try:
        import yaml  # an extra, which few codebooks need
    except ImportError:
        problem = "is YAML, which is read by the package PyYAML, which is missing"
        raise Fault(f"{problem}: pip install 'dpsql[codebooks]'") from None
    text, depth = _decoded(raw), 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):  # before anything is built of it
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise Fault("is nested too deeply")
        return yaml.load(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, f"is no YAML: {error.problem}"
    except (yaml.YAMLError, ValueError):
        raise Fault("is no YAML") from None
    raise Fault(problem, *((mark.line + 1, mark.column + 1) if mark else ()))


def _parse_csv(raw: bytes) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(_decoded(raw), newline=""), strict=True)
    try:
        rows = [{k: v or "" for k, v in row.items() if isinstance(k, str)} for row in reader]
    except csv.Error as error:
        problem = f"is no CSV: {error}"
        raise Fault(problem, reader.reader.line_num, 1) from None
    return rows


def _parse_xml(raw: bytes) -> ElementTree.Element:
    try:
        root = ElementTree.fromstring(raw)
    except ElementTree.ParseError as error:
        line, column = error.position
        problem = f"is no XML: {str(error).partition(':')[0]}"
    except (LookupError, ValueError):
        raise Fault("is no XML: it declares an encoding that is not known") from None
    else:
        for each in root.iter():
            each.tag = str(each.tag).rpartition("}")[2]
        return root
    raise Fault(problem, line, column + 1)


SYNTAXES: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    ".json": ("tree", _parse_json),
    ".yaml": ("tree", _parse_yaml),
    ".yml": ("tree", _parse_yaml),
    ".csv": ("rows", _parse_csv),
    ".xml": ("xml", _parse_xml),
    ".sql": ("sql", _decoded),
    ".ddl": ("sql", _decoded),
}
"""Syntaxes and what parses them, by the end of a name; what ends otherwise is tried as JSON."""
