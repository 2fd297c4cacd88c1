"""The schemas of Parquet files, remembered while the files stay as they are.

A connection asks for them twice, and DuckDB takes 15 ms to start. Schemas hold no value, and what
reads rows compares them with the files that it opens.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

from dpsql.forks import fresh
from dpsql.privacy.vault.files.source import Source

KEPT = 256
"""Sources that are remembered."""

Facts = tuple[str | int, ...]
_known: OrderedDict[tuple[str, tuple[Facts, ...]], Source] = OrderedDict()
# Not held while a source is read, which may take long: two threads find the same.
_knowing = fresh(Lock())


def cached_source(declared: str, paths: Sequence[str], read: Callable[[], Source]) -> Source:
    """Return what ``read`` finds of a source of Parquet files, at once where it is known.

    Raises: what ``read`` raises.
    """
    try:
        facts = tuple(map(_facts, paths))
    except OSError:
        return read()
    with _knowing:
        found = _known.get((declared, facts))
    if found is None:
        found = read()
        with _knowing:
            _known[declared, facts] = found
            while len(_known) > KEPT:
                _known.popitem(last=False)
    return found


def _facts(path: str) -> Facts:
    """Return the facts that change with a file."""
    facts = os.stat(path)
    return path, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
