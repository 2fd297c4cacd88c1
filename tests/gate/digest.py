"""Digests of what a statement compiles to: the same in every process, on every machine.

No ``hash``, no address and no last digit of a float is in them. A digest has three parts: what is
scanned, which sums are measured, and what is made of the answers. The last part is of texts that
sqlglot writes: another release of it may change that part alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpsql.algebra.operator import Operator
from dpsql.relation.unit_local import DerivedTable
from dpsql.sql.compiled import Answer, Compiled, Select
from dpsql.workload.term import Term

LENGTH = 6
"""Hexadecimal digits of a part: one false match in 16 million differences."""
MOST = 1 << 22
"""Most numbers in what an operator makes of a probe; a larger one is known by its shape."""
_BLANK = re.compile(r"[\s()]+")


def digest(compiled: Compiled) -> str:
    """Return ``scanned.measured.shown`` of a statement, each in hexadecimal digits."""
    operators: dict[int, str] = {}
    scanned = [_scanned(select) for select in compiled.selects]
    measured = [text for select in compiled.selects for text in _measured(select, operators)]
    return ".".join(map(short, (scanned, measured, list(_shown(compiled)))))


def short(facts: Sequence[str]) -> str:
    """A digest of texts in order."""
    found = hashlib.sha256()
    for fact in facts:
        found.update(fact.encode("utf-8", "backslashreplace"))
        found.update(b"\0")
    return found.hexdigest()[:LENGTH]


def _scanned(select: Select) -> str:
    """A table by its name, a relation by its tree: the name of its stored cells ends in that."""
    table = select.table
    if isinstance(table, DerivedTable):
        return table.name.rsplit(" ", 1)[-1]
    return table.name.casefold()


def _measured(select: Select, operators: dict[int, str]) -> Iterator[str]:
    """The groups of a SELECT and its sums."""
    for branch in select.branches:
        axes = [(axis.column, axis.keys, _groups(axis.groups)) for axis in branch.axes]
        fixed = sorted((key, plain(value)) for key, value in branch.fixed.items())
        yield repr((axes, sorted(branch.absent), fixed))
    for answer in select.answers:
        yield from _answer(answer, operators)


def _groups(groups: Sequence[Sequence[Any]]) -> str:
    return short([plain(group) for group in groups])


def _answer(answer: Answer, operators: dict[int, str]) -> Iterator[str]:
    rank = answer.rank and (answer.rank.kind, number(answer.rank.quantile), answer.rank.end)
    counted = answer.distinct and (answer.distinct[0], plain(answer.distinct[1]))
    yield repr((answer.branch, answer.aggregate, rank, answer.units, counted))
    yield from (_term(term, operators) for term in answer.whole)


def _term(term: Term, operators: dict[int, str]) -> str:
    factors = sorted((name, _operator(each, operators)) for name, each in term.factors.items())
    polynomials = sorted(
        (name, plain(each.fractions), number(each.null), plain(each.clip))
        for name, each in term.polynomials.items()
    )
    pattern = "" if term.pattern is None else term.pattern.key
    return repr((number(term.scale), factors, polynomials, pattern))


def _operator(operator: Operator, known: dict[int, str]) -> str:
    """What a matrix makes of two probes, whatever it is written as."""
    if id(operator) not in known:
        facts = [repr(operator.shape)]
        if sum(operator.shape) <= MOST:
            cells = np.arange(operator.n, dtype=np.int64)
            probes = np.stack([cells * 37 % 101 + 1, cells * cells % 89 + 1], axis=1)
            whole = operator.integer
            found = operator.matmat(probes if whole else probes.astype(np.float64))
            facts += _numbers(np.asarray(found))
        known[id(operator)] = short(facts)
    return known[id(operator)]


def _numbers(found: Any) -> list[str]:
    if np.issubdtype(found.dtype, np.integer):
        return [found.astype("<i8").tobytes().hex()]
    if np.array_equal(found, np.rint(found)) and np.all(np.abs(found) < 2**53):
        return [np.rint(found).astype("<i8").tobytes().hex()]
    return [number(each) for each in found.ravel().tolist()]


def _shown(compiled: Compiled) -> Iterator[str]:
    """The columns of the result, and SQL over the answers."""
    yield repr(compiled.columns)
    outer = compiled.outer
    for select in compiled.selects:
        shell = select.query.shell
        yield from (_text(output.sql) for output in shell.outputs)
        tail = shell.tail
        yield repr((_text(tail.having), [*map(_text, tail.windows)], _text(tail.qualify)))
        yield repr(([(_text(sql), how) for sql, how in tail.order], tail.limit, tail.offset))
    if outer is not None:
        yield _text(outer.sql)
        yield repr((outer.noisy, outer.whole, sorted(each.name for each in outer.public)))


def _text(sql: str | None) -> str:
    """SQL without blanks and parentheses, which mean nothing where the rest is the same."""
    return "" if sql is None else _BLANK.sub(" ", sql).strip()


def plain(value: Any) -> str:
    """A value as text, whatever library it comes from."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{plain(k)}: {plain(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(plain, value))})"
    return repr(value)


def number(value: float) -> str:
    """A number without its last digits, one text for both zeros.

    >>> number(0.1 + 0.2), number(-0.0), number(3)
    ('0.3', '0', '3')
    """
    return f"{float(value) + 0.0:.9g}"
