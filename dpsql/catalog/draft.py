"""Draft a catalog for tables of data from the names and types of their columns.

Of values nobody is told more than how they are written, and that of files of text alone.
What only a person can know is left open, and marked: whom the guarantee protects, what a column may
hold, the total budget. A drafted catalog is refused until the first is decided.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpsql.catalog.catalog import is_stored, kind_of
from dpsql.catalog.codebook import BookColumn, Codebook, missing_in
from dpsql.catalog.column_guesses import is_identifier, is_person, words_of
from dpsql.records import dataclass, field, replace
from dpsql.relation.row_view import LEFT_OUT

BLIND = "# Drafted from the names and types of columns: no value was read. What is left to you:"
LOOKED = """\
# Drafted from names of columns, and by looking at how values of text are written: lines that say
# "looks like" or "Seen" came from that. A catalog is public: read it before it is shared.
# What is left to you:"""
HEAD = """\
#   whom the guarantee protects: one privacy_unit for every table, refused until then;
#   what each column may hold, from the documentation of the data, never from the data:
#   what is not declared cannot be queried;
#   how many rows a large table may have, row_count_hint: room for them is taken first;
#   the budget.
# `dpsql check` on this file then tells you which rows the declarations leave out.

[budget]
epsilon = 1.0        # for everything ever released from this catalog
delta   = 1e-9       # 0 = pure differential privacy
"""
SEEN = "# Seen in the file: "
COUNTED = ": `dpsql check` counts them."
VOUCHED = """\
A view: by view = true you vouch that each of its rows follows from rows of its own privacy unit."""
UNREAD = {
    "nested": "a list, struct or map",
    "unreadable": "stored in a type of which some values cannot be read",
    "other": "stored in a type that has no domain",
}
"""Families of columns that cannot be declared, in words."""


@dataclass(frozen=True, slots=True)
class DraftedTable:
    """Facts of a table to draft: its name, where its rows are, its columns as (name, type family).

    ``source`` is a path, or what is said of a server, a table in a database file or the form of
    files. ``untyped`` says that the columns have names only, as those of CSV files; ``looks`` then
    says how values of a column look, empty where none was seen, None where nobody looked.
    ``told`` was seen of the form, and ``remark`` is worth a comment. ``book`` is what the file
    itself says of columns, by case-folded name: labels of codes, and which are missing.
    """

    name: str
    source: str | Mapping[str, Any]
    columns: Sequence[tuple[str, str]]
    untyped: bool = False
    remark: str = ""
    looks: Mapping[str, str] | None = None
    told: Sequence[str] = ()
    book: Mapping[str, BookColumn] = field(default_factory=dict)

    def seen_from(self, folder: Path) -> DraftedTable:
        """The same with its file as a catalog in a folder would name it."""
        if isinstance(self.source, str):
            return replace(self, source=_relative(self.source, folder))
        here = {
            key: _relative(path, folder)
            for key, path in self.source.items()
            if key in ("file", "delta", "iceberg") and isinstance(path, str)
        }
        return replace(self, source={**self.source, **here})


def draft(tables: Sequence[DraftedTable], known: Codebook | None = None) -> str:
    """Return a TOML catalog with one line for every column, commented where it is not usable."""
    shared = _shared_identifiers(tables)
    taken: set[str] = set()
    is_blind = all(table.looks is None for table in tables)
    lines = [f"{BLIND if is_blind else LOOKED}\n{HEAD}"]
    lines += [f"{line}\n" for line in _unit(shared)]
    for table in tables:
        name = _unused(_table_name(table.name), taken)
        said = {} if known is None else known.of(table.name)
        lines.append("\n".join(_section(_told(table, said), name, shared, said)) + "\n")
    return "\n".join(lines)


def _told(table: DraftedTable, known: Mapping[str, BookColumn]) -> DraftedTable:
    """The same with the words for missing values that a codebook has for all of its columns."""
    words = missing_in([name for name, _ in table.columns], known) if table.untyped else ()
    if not words:
        return table
    form: dict[str, Any] = (
        {"file": table.source} if isinstance(table.source, str) else dict(table.source)
    )
    form["missing"] = sorted({*form.get("missing", ()), *words})
    told = (*table.told, f"words for what is missing, in the codebook: {', '.join(words)}")
    return replace(table, source=form, told=told)


def _relative(path: str, folder: Path) -> str:
    """Return a path as written in a folder: relative to it where it lies there or below."""
    if is_stored(path):
        return path
    home = os.path.realpath(folder)
    found = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
    is_inside = os.path.commonpath([home, found]) == home
    return os.path.relpath(found, home) if is_inside else found


def _shared_identifiers(tables: Sequence[DraftedTable]) -> list[str]:
    """The identifiers that several tables have: of persons first, then most frequent first."""
    found = Counter(
        name.casefold()
        for table in tables
        for name, _ in table.columns
        if is_identifier(name) or is_person(name)
    )
    shared = [name for name, times in found.most_common() if times > 1]
    return sorted(shared, key=lambda name: not is_person(name))


def _unit(shared: Sequence[str]) -> Iterator[str]:
    if shared:
        words = words_of(shared[0])
        name = "_".join(words[:-1] if is_identifier(shared[0]) else words) or "person"
        yield (
            f"# Several tables have {_key(shared[0])}. Where it is the same person in all,\n"
            f"# declare one unit, and tables can be joined (docs/tables.md):\n# [unit.{name}]"
        )


def _table_name(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_").lower() or "data"


def _unused(name: str, taken: set[str]) -> str:
    found = next(
        n for i in range(len(taken) + 1) if (n := name + f"_{i + 1}" * (i > 0)) not in taken
    )
    taken.add(found)
    return found


def _section(
    table: DraftedTable, name: str, shared: Sequence[str], known: Mapping[str, BookColumn]
) -> Iterator[str]:
    yield f"[table.{name}]"
    if table.remark:
        yield f"# {table.remark}"
    yield from (f"{SEEN}{each}." for each in table.told)
    yield f"source = {_toml(table.source)}"
    yield "# Whom does the guarantee protect? Uncomment one line."
    yield from _units(table, shared)
    yield ""
    yield f"[table.{name}.column]"
    if table.untyped:
        guessed = "guessed from the names" if table.looks is None else "what their values look like"
        yield f"# The file names columns without types: those here are {guessed}."
        form = {} if isinstance(table.source, str) else table.source
        kind = kind_of(str(form.get("file", table.source)))
        if kind in LEFT_OUT:
            left = LEFT_OUT[kind].replace("UTF-8", str(form.get("encoding", "utf-8")).upper())
            yield f"# {left[0].upper()}{left[1:]}{COUNTED}"
    width = max((len(_key(column)) for column, _ in table.columns), default=0)
    declared: set[str] = set()
    for column, family in table.columns:
        line = _line(column, family, width) if _is_usable(column, declared) else _unusable(column)
        where, described = "the codebook", known.get(column.casefold())
        if described is None:
            where, described = "labels in the file", table.book.get(column.casefold())
        if described is None or line.startswith("#"):
            yield line + _looked(table, column, line)
        else:
            remark = described.remark(_missing(table))
            said = f"{described.facts()} # from {where}{': ' if remark else ''}{remark}"
            yield f"{_key(column):<{width}} = {said}"
        declared.add(column.casefold())


def _missing(table: DraftedTable) -> Sequence[str]:
    """The words that the source of a table declares missing."""
    return () if isinstance(table.source, str) else table.source.get("missing", ())


def _looked(table: DraftedTable, column: str, line: str) -> str:
    """The words on a line that came from looking at values."""
    if table.looks is None or line.startswith("#"):
        return ""
    look = table.looks.get(column)
    words = f"looks like {look}" if look else "no value was seen: guessed from the name"
    return f"{';' if '#' in line else ' #'} {words}"


def _units(table: DraftedTable, shared: Sequence[str]) -> list[str]:
    found = [
        name
        for name, family in table.columns
        if (is_identifier(name) or is_person(name)) and family != "nested"
    ]
    found.sort(
        key=lambda name: (
            shared.index(name.casefold()) if name.casefold() in shared else len(shared),
            not is_person(name),
        )
    )
    lines = []
    for name in found or ["person_id"]:
        what = f"all rows with the same {_key(name)} together; of more than 5 only 5 count"
        lines.append((f"# privacy_unit = {{ column = {_toml(name)}, max_rows = 5 }}", what))
    lines.append(
        ('# privacy_unit = "row"', "each row by itself: right only if nobody has two rows")
    )
    width = max(len(text) for text, _ in lines)
    return [f"{text:<{width}} # {what}" for text, what in lines]


def _line(column: str, family: str, width: int) -> str:
    if family in UNREAD:
        return f"# {_key(column)}: {UNREAD[family]}"
    if is_identifier(column):
        return f"# {_key(column)}: an identifier, for privacy_unit or references, not for questions"
    return f"{_key(column):<{width}} = {_facts(family)}"


def _is_usable(column: str, declared: set[str]) -> bool:
    """True if a catalog takes the name of a column beside those before it."""
    return column.isprintable() and column.casefold() not in {"", *declared}


def _unusable(column: str) -> str:
    return f"# {_key(column)}: no name, or one that comes twice: names are compared without case"


def _toml(source: Any) -> str:
    if isinstance(source, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(value)}' for key, value in source.items())} }}"
    return json.dumps(source, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def propose_type(kind: str) -> str:
    """The words with which a column of a type may be declared.

    >>> propose_type("text")
    'domain = ["a", "b"], or domain_file = "values.txt"'
    """
    declared, _, words = _facts("float" if kind == "number" else kind).partition(" # ")
    return words or declared.partition(", ")[2].removesuffix(" }")


def _facts(kind: str) -> str:
    match kind:
        case "integer":
            return '{ type = "integer" } # domain = [0, 99], or bounds = [0, 100000]'
        case "decimal":
            return '{ type = "decimal" } # domain = [0, 9.99], step = 0.01; or a number with bounds'
        case "float":
            return '{ type = "number" } # domain = [0, 500], bins = 100, or bounds = [0, 500]'
        case "boolean":
            return '{ type = "boolean", domain = [false, true] }'
        case "timestamp":
            return '{ type = "timestamp" } # domain = ["2024-01-01", "2024-12-31"], by = "hour"'
        case "time":
            return '{ type = "time" } # domain = ["08:00", "18:00"], by = "15 minutes"'
        case "date":
            return '{ type = "date" } # domain = ["2020-01-01", "2024-12-31"], by = "month"'
    return '{ type = "text" } # domain = ["a", "b"], or domain_file = "values.txt"'
