"""Queries for rows that satisfy at least t of several predicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.adaptive.handle import Candidate, Floats, Integers
from dpsql.adaptive.relaxed import layout
from dpsql.algebra.blocks import Dense
from dpsql.errors import ProgrammingError
from dpsql.plan.workload import Product

MAX_TERMS = 64


@dataclass(frozen=True, slots=True, eq=False)
class AtLeast:
    """At least ``t`` of the predicates hold; several 0/1 vectors may be about one attribute.

    t = 1 is OR over attributes, t = the number of predicates is AND.
    """

    predicates: Mapping[str, Integers]
    t: int

    def __post_init__(self) -> None:
        rows = {a: np.atleast_2d(np.asarray(v)) for a, v in self.predicates.items()}
        count = sum(len(v) for v in rows.values())
        if not 1 <= self.t <= count or any(not np.isin(v, (0, 1)).all() for v in rows.values()):
            raise ProgrammingError(
                "E_WORKLOAD",
                f"at least {self.t} of {count} predicates is no threshold query",
                hint="give 0/1 vectors, and a threshold between 1 and their number",
            )
        object.__setattr__(self, "predicates", rows)

    def counts(self, name: str) -> Integers:
        """Return one 0/1 row per possible number of predicates that hold, shape (s + 1, n)."""
        held = self.predicates[name].sum(axis=0)
        possible = np.arange(len(self.predicates[name]) + 1)
        return np.asarray(held == possible[:, np.newaxis], dtype=np.int64)

    def candidate(self, domain: Mapping[str, int]) -> Candidate:
        """Return the same query as a sum of disjoint products.

        Raises ProgrammingError E_TOO_COMPLEX above 64 products.
        """
        names = [a for a in domain if a in self.predicates]
        return _expand(names, {a: self.counts(a) for a in names}, self.t)


def _expand(names: Sequence[str], counts: Mapping[str, Integers], t: int) -> Candidate:
    """Walk the attributes; a term ends as soon as the threshold is reached."""
    most = [sum(len(counts[b]) - 1 for b in names[i:]) for i in range(len(names) + 1)]
    terms: list[dict[str, Dense]] = []
    open_terms: list[tuple[dict[str, Dense], int]] = [({}, t)]
    for i, name in enumerate(names):
        new = []
        for factors, need in open_terms:
            enough = counts[name][max(need, 0) :].sum(axis=0)
            if enough.any():
                terms.append({**factors, name: Dense(enough[np.newaxis])})
            for s in range(min(need, len(counts[name]))):
                if need - s <= most[i + 1] and counts[name][s].any():
                    new.append(({**factors, name: Dense(counts[name][s : s + 1])}, need - s))
        open_terms = new
        if len(terms) + len(open_terms) > MAX_TERMS * 16 or len(terms) > MAX_TERMS:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                f"the threshold query needs more than {MAX_TERMS} products",
                hint="use fewer predicates, or a threshold near one or near their number",
            )
    if not terms:
        terms = [{names[0]: Dense(np.zeros((1, counts[names[0]].shape[1]), dtype=np.int64))}]
    return tuple(Product(factors) for factors in terms)


@dataclass(frozen=True, slots=True)
class CountQuery:
    """A threshold query on relaxed rows: convolutions of the counts of every attribute."""

    columns: tuple[slice, ...]
    counts: tuple[Floats, ...]
    t: int

    @classmethod
    def read(cls, query: AtLeast, domain: Mapping[str, int], dtype: Any) -> CountQuery:
        places = layout(domain)
        names = [a for a in domain if a in query.predicates]
        counts = tuple(query.counts(a).astype(dtype) for a in names)
        return cls(tuple(places[a] for a in names), counts, query.t)

    def tables(self, x: Floats) -> list[Floats]:
        """Return per attribute the distribution of its count on every component, (C, s + 1)."""
        return [x[:, s] @ g.T for s, g in zip(self.columns, self.counts, strict=True)]

    def answer(self, tables: Sequence[Floats]) -> float:
        """Return the share of rows with at least t predicates."""
        joint = tables[0]
        for table in tables[1:]:
            joint = convolve(joint, table)
        return float(joint[:, self.t :].sum() / len(joint))

    def pull(self, tables: Sequence[Floats], error: float, out: Floats) -> None:
        """Add the gradient of error times the answer: P(the others count >= t - s)."""
        one = np.ones_like(tables[0][:, :1])
        before = [one]
        for table in tables[:-1]:
            before.append(convolve(before[-1], table))
        after = one
        for i in reversed(range(len(tables))):
            others = convolve(before[i], after)
            tail = np.cumsum(others[:, ::-1], axis=1)[:, ::-1]
            need = self.t - np.arange(tables[i].shape[1])
            padded = np.concatenate([tail, np.zeros_like(one)], axis=1)
            gradient = padded[:, np.clip(need, 0, tail.shape[1])] * (error / len(out))
            out[:, self.columns[i]] += gradient @ self.counts[i]
            after = convolve(after, tables[i])


def convolve(a: Floats, b: Floats) -> Floats:
    """Return row-wise polynomial products, shapes (C, p) and (C, q) to (C, p + q - 1)."""
    out = np.zeros((len(a), a.shape[1] + b.shape[1] - 1), dtype=a.dtype)
    for j in range(b.shape[1]):
        out[:, j : j + a.shape[1]] += a * b[:, j : j + 1]
    return out
