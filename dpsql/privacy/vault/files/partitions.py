"""Columns that no file has: folders tell them, as year=2024 in the layout of Hive.

They are text, as the columns of CSV are, and one file has one value of each. Which there are is
declared, so that no name of a folder decides on anything but the value of the rows below it.

Guarantee: the value of a row is a function of the path of its file alone, and every path has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import PurePath
from typing import TypeVar
from urllib.parse import unquote

from dpsql.privacy.vault.data_engine import Unreadable

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows without a value."""
T = TypeVar("T")
Values = tuple[str | None, ...]
"""The values of a file, one for each column."""


def folder_values(paths: Sequence[str], names: Sequence[str]) -> tuple[Values, ...]:
    """Return the values that the folders of each file tell of some columns.

    >>> folder_values(["/a/year=2024/ward=a%2Fb/1.parquet"], ["ward", "year"])
    (('a/b', '2024'),)

    Raises: Unreadable where a file is in no folder of a name.
    """
    return tuple(_values(path, names) for path in paths) if names else ()


def _values(path: str, names: Sequence[str]) -> Values:
    pairs = (each.partition("=") for each in PurePath(path).parts[:-1])
    known = {name: value for name, sign, value in pairs if sign}
    lost = next((name for name in names if name not in known), None)
    if lost is not None:
        problem = f"some of its files are in no folder {lost}=..."
        raise Unreadable(problem, "`partitions` are columns that folders of all files tell")
    return tuple(_value(known[name]) for name in names)


def _value(written: str) -> str | None:
    return None if written in (NULL, "") else unquote(written, errors="replace")


def in_groups(paths: Sequence[str], facts: Sequence[T]) -> Iterator[tuple[tuple[str, ...], T]]:
    """Yield the files that follow each other and of which the same is known, in order."""
    pairs = zip(paths, facts, strict=True)
    for known, some in groupby(pairs, key=lambda each: each[1]):
        yield tuple(path for path, _ in some), known


def partitioned_names(folder: str, path: str) -> tuple[str, ...]:
    """Return the names of the columns that the folders between a folder and a file tell.

    >>> partitioned_names("/a/b=1", "/a/b=1/year=2024/m=3/x.csv"), partitioned_names("/a", "/a/x")
    (('year', 'm'), ())
    """
    parts = PurePath(path).relative_to(folder).parts[:-1]
    return tuple(name for part in parts for name, sign, _ in [part.partition("=")] if sign)
