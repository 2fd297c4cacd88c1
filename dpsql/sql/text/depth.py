"""The depth to which a statement may be nested: as deep as Python's stack takes, whoever calls.

Of its 1,000 frames the parser takes up to 27 a level, our walks of a tree up to three a node. Who
calls may have used most of them, as frameworks do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlglot import exp

from dpsql.errors import ProgrammingError

MAX_DEPTH = 50
"""Levels that are given to the parser; of some kinds it takes as many, of others fewer."""
SURE_DEPTH = 30
"""Levels of any kinds that it takes: parentheses, CASE, NOT and signs, counted together."""
MAX_TREE_DEPTH = 300

T = TypeVar("T")


def with_room(work: Callable[[], T]) -> T:
    """The result of work without side effects, or its error, wherever it is called.

    What does not fit beside the frames of the caller is done anew on the stack of another thread.
    """
    try:
        return work()
    except RecursionError:
        from concurrent.futures import ThreadPoolExecutor  # 3 ms, and rarely of use

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work).result()


def check_depth(tree: exp.Expr) -> None:
    """Refuse a tree that is too deep to be walked. Raises: ProgrammingError (E_TOO_COMPLEX)."""
    level: list[exp.Expr] = [tree]
    for _ in range(MAX_TREE_DEPTH):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise too_deep()


def too_deep() -> ProgrammingError:
    """The error for a statement that does not fit."""
    hint = (
        f"{SURE_DEPTH} levels of parentheses, CASE, NOT and signs are read; IN replaces long lists"
        " of OR; of sub-queries and operators, fewer are read from deep within a program"
    )
    return ProgrammingError("E_TOO_COMPLEX", "the statement is nested too deeply", hint=hint)
