"""GROUP BY -> the sets of keys that its elements stand for, each key by its number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.sql.shell.language import Locate

MAX_SETS = 256
"""Most grouping sets, as CUBE of eight keys has: each is a marginal with axes of its own."""

Sets = tuple[tuple[int, ...], ...]

Number = Callable[[exp.Expr], int]
"""The number of a key, which it has from then on."""


def read_sets(group: exp.Expr, nodes: Sequence[exp.Expr], number: Number, locate: Locate) -> Sets:
    """Return all grouping sets: the combinations of what the elements of GROUP BY offer.

    ``nodes`` are its elements, with ALL written out.
    Raises: ProgrammingError (E_TOO_LARGE), NotSupportedError (E_GROUP_BY).
    """
    offers = [_offers(node, number, locate) for node in nodes]
    count = 1
    for offer in offers:
        count *= len(offer)
    if count > MAX_SETS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"GROUP BY asks for {count:,} grouping sets",
            hint=f"at most {MAX_SETS}; list those you need in GROUPING SETS",
            span=locate(group),
        )
    return tuple(_flat(chosen) for chosen in itertools.product(*offers))


def _offers(node: exp.Expr, number: Number, locate: Locate) -> list[tuple[int, ...]]:
    """The sets of keys that one element of GROUP BY stands for."""
    if isinstance(node, exp.GroupingSets):
        return [each for part in node.expressions for each in _offers(part, number, locate)]
    if not isinstance(node, exp.Cube | exp.Rollup):
        return [_together(node, number)]
    parts = [_together(part, number) for part in node.expressions]
    if len(set(_flat(parts))) < sum(map(len, parts)):  # a key would be there and left out at once
        raise NotSupportedError(
            "E_GROUP_BY",
            "a key twice in CUBE or ROLLUP is not supported",
            hint="list every key once",
            span=locate(node),
        )
    sizes = range(len(parts), -1, -1)
    if isinstance(node, exp.Rollup):
        return [_flat(parts[:size]) for size in sizes]
    chosen = (c for size in sizes for c in itertools.combinations(parts, size))
    return [_flat(each) for each in chosen] if len(parts) <= 8 else [()] * (MAX_SETS + 1)


def _together(node: exp.Expr, number: Number) -> tuple[int, ...]:
    """Keys in parentheses count as one element."""
    if isinstance(node, exp.Tuple):
        return _flat([_together(part, number) for part in node.expressions])
    return (number(node.unnest() if isinstance(node, exp.Paren) else node),)


def _flat(parts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))
