"""Parts of a query that the declared domains decide by themselves, in words.

A number that is 0 by declaration looks like any other 0 otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_

from dpsql.catalog.describe import describe_values
from dpsql.errors import Span, printable
from dpsql.sql.cells.evaluate import Evaluator, Mask, Operand
from dpsql.sql.query import Condition, Expression, JointCondition, Query
from dpsql.workload.term import Pattern

KEYS_ALONE = "keys are those that are declared or were found, whatever rows there are: exact, free"
LIMITED = (
    "declared groups that no row is in may take places of LIMIT, and are rows of windows: HAVING "
    "COUNT(*) > ... leaves them out"
)
LONGEST = 60
"""Characters of a condition that are repeated."""


def find_decided(
    query: Query,
    source: Callable[[str | None], Operand],
    evaluator: Evaluator,
    patterns: Mapping[tuple[JointCondition, ...], Pattern],
    rows: int,
) -> tuple[str, ...]:
    """Conditions that no declared value meets, and literals that no column can hold.

    Of so many ``rows``, one for each declared group, LIMIT may leave some, and others have ranks.
    """
    found: dict[str, None] = {}
    never: set[Expression] = set()
    for column, conditions in _by_column(query):
        values = source(column)
        masks = [evaluator.mask(values, each) for each in conditions]
        if not reduce(and_, masks).any():
            empty = [c for c, mask in zip(conditions, masks, strict=True) if not mask.any()]
            needed = empty[:1] or _needed(conditions, masks)
            found[_never(needed, values)] = None
            never.update(empty[:1])
    for coupled, pattern in patterns.items():
        if not pattern.truth.any():
            said = _text(each.span for each in coupled)
            found[f"{said} holds for no declared values: 0 by declaration"] = None
    for each in query.expressions():
        for literal in () if each in never else each.undeclared:
            found[_undeclared(literal, source(each.column))] = None
    tail = query.shell.tail
    if query.aggregates and tail.having is None and tail.places(rows):
        found[LIMITED] = None
    if not query.aggregates:
        found[KEYS_ALONE] = None
    return tuple(found)


def _by_column(query: Query) -> Iterator[tuple[str, list[Expression]]]:
    """The conditions on each column that have to hold together."""
    groups: list[tuple[Condition, ...]] = [query.where]
    for aggregate in query.aggregates:
        (own, *others) = aggregate.summands
        shared = (*query.where, *aggregate.conditions)
        groups.append(shared if others else (*shared, *own.conditions))
    for group in dict.fromkeys(groups):
        singles = [each for each in group if isinstance(each, Expression) and not each.listed]
        for column in dict.fromkeys(each.column for each in singles):
            if column is not None:
                yield column, [each for each in singles if each.column == column]


def _needed(conditions: Sequence[Expression], masks: Sequence[Mask]) -> list[Expression]:
    """Conditions of those that no value meets together, as few as no value meets either.

    What an aggregate asks of its column, that it is known, is a condition that nobody wrote.
    """
    kept = dict(enumerate(masks))
    for place in reversed(range(len(masks))):
        others = [mask for k, mask in kept.items() if k != place]
        if others and not reduce(and_, others).any():
            del kept[place]
    return [conditions[place] for place in kept]


def _never(conditions: Sequence[Expression], source: Operand) -> str:
    assert source.column is not None
    known = f"{printable(source.column.name)} ({describe_values(source.column)})"
    with_rows = " with a public row" if source.lookup is not None else ""
    said = _text(each.span for each in conditions)
    return f"{said} holds for no declared value of {known}{with_rows}: 0 by declaration"


def _undeclared(literal: str, source: Operand) -> str:
    assert source.column is not None
    known = f"{printable(source.column.name)} ({describe_values(source.column)})"
    return f"{printable(literal)} is no declared value of {known}"


def _text(spans: Iterable[Span]) -> str:
    """The SQL of some conditions, shortened."""
    texts = dict.fromkeys(map(_written, spans))
    text = printable(" and ".join(texts))
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _written(span: Span) -> str:
    """The text of a span; the parser may not remember where the last parenthesis is."""
    text = " ".join(span.text[span.start : span.end].split())
    return text + ")" * max(0, text.count("(") - text.count(")"))
