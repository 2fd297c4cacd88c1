"""How many threads linear algebra has during a search: one where no matrix is large.

The libraries under numpy and scipy give a product of a few hundred rows to all cores, and let each
of them spin until the next one comes. Where something else runs on these cores, a search so took
up to ten times the CPU seconds and five times as long; where nothing does it is no faster by them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController

LARGE = 1000
"""Cells of a column from which products of its matrices gain by several threads."""

MOST = 1 << 12
"""Most cells of a column that has matrices: what is beyond has hierarchies instead."""


@contextmanager
def threads_for(domains: Iterable[Mapping[str, int]]) -> Iterator[None]:
    """Let linear algebra have one thread inside, unless a column of these domains is large.

    Where libraries know one number for the whole process, it is the first thread of those that are
    inside at once which sets it, and takes it back; the others change nothing.
    """
    if any(LARGE <= size <= MOST for domain in domains for size in domain.values()):
        yield
        return
    with _libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=2)
def _libraries(with_scipy: bool) -> ThreadpoolController:
    """The libraries that are loaded, which are more once scipy's is: to find them takes 5 ms."""
    return ThreadpoolController()
