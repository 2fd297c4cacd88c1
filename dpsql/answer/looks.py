"""What a run was told, as plain facts and arrays and back: every look with its noisy answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.adaptive.handle import Measured, Query
from dpsql.adaptive.query import rows
from dpsql.adaptive.transcript import Look
from dpsql.algebra import blocks, derived, operator, ranges, wavelet
from dpsql.algebra.operator import Operator
from dpsql.plan.noise_law import Noise
from dpsql.plan.pattern import Pattern
from dpsql.plan.workload import Product

Array = NDArray[Any]

OPERATORS: dict[str, type[Operator]] = {
    each.__name__: each
    for each in (
        blocks.Dense,
        blocks.Identity,
        blocks.IdentityTotal,
        blocks.Prefix,
        blocks.Total,
        operator.Columns,
        derived.Weighted,
        ranges.AllRange,
        ranges.Ranges,
        wavelet.Haar,
    )
}


def encode_looks(looks: Sequence[Look], keep: Callable[[Array], str]) -> dict[str, Any]:
    """Return plain facts that describe the looks; ``keep`` stores an array by name.

    Operators are stored once each, and all noisy answers as one array.
    """
    measured = [m for look in looks for m in look.measured]
    writer = _Writer(keep)
    queries = [writer.query(m.query) for m in measured]
    values = [m.values for m in measured] or [np.zeros(0)]
    return {
        "looks": [
            [str(each.amount), len(each.measured), each.chosen, each.among] for each in looks
        ],
        "queries": queries,
        "operators": writer.operators,
        "stddevs": [m.stddev for m in measured],
        "values": keep(np.concatenate(values)),
    }


def decode_looks(
    facts: Mapping[str, Any], arrays: Mapping[str, Array], noise: Noise
) -> tuple[Look, ...]:
    """Return the looks that ``encode_looks`` described.

    Raises: KeyError, TypeError, ValueError for anything else.
    """
    operators: list[Operator] = []
    for each in facts["operators"]:
        operators.append(_operator(each, arrays, operators))
    values, place = arrays[facts["values"]].astype(np.float64), 0
    values.flags.writeable = False
    measured = []
    for each, stddev in zip(facts["queries"], facts["stddevs"], strict=True):
        query = _query(each, arrays, operators)
        size = rows(query)
        measured.append(Measured.of(query, values[place : place + size], stddev, noise))
        place += size
    looks, at = [], 0
    for amount, count, chosen, among in facts["looks"]:
        looks.append(Look(Fraction(amount), tuple(measured[at : at + count]), chosen, among))
        at += count
    if (place, at) != (values.size, len(measured)):
        raise ValueError("looks")
    return tuple(looks)


class _Writer:
    """Operators as a list of plain facts, each after those it is made of."""

    def __init__(self, keep: Callable[[Array], str]) -> None:
        self.keep = keep
        self.operators: list[dict[str, Any]] = []
        self.known: dict[Any, int] = {}

    def query(self, query: Query) -> dict[str, Any] | list[Any]:
        if isinstance(query, Pattern):
            labels = {name: self.keep(_small(each)) for name, each in query.labels.items()}
            return {"labels": labels, "truth": self.keep(query.truth)}
        return [
            [[[name, self.operator(op)] for name, op in product.factors.items()], product.weight]
            for product in query
        ]

    def operator(self, op: Operator) -> int:
        if op.key not in self.known:
            made: Any = op  # every operator is a frozen dataclass
            names = [each.name for each in fields(made) if each.init]
            found = {name: self.value(getattr(op, name)) for name in names}
            self.operators.append({"operator": type(op).__name__, **found})
            self.known[op.key] = len(self.operators) - 1
        return self.known[op.key]

    def value(self, value: Any) -> Any:
        if isinstance(value, Operator):
            return {"operator": self.operator(value)}
        if isinstance(value, np.ndarray):
            return {"array": self.keep(_small(value))}
        return value.item() if isinstance(value, np.generic) else value


def _small(array: Array) -> Array:
    """The same numbers in a byte each, where they fit."""
    if array.dtype.kind == "i" and -128 <= array.min(initial=0) <= array.max(initial=0) < 128:
        return array.astype(np.int8)
    return array


def _large(array: Array) -> Array:
    return array.astype(np.int64) if array.dtype.kind == "i" else array


def _operator(
    facts: Mapping[str, Any], arrays: Mapping[str, Array], known: Sequence[Operator]
) -> Operator:
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            is_array = "array" in value
            value = _large(arrays[value["array"]]) if is_array else known[value["operator"]]
        found[name] = value
    return OPERATORS[found.pop("operator")](**found)


def _query(facts: Any, arrays: Mapping[str, Array], operators: Sequence[Operator]) -> Query:
    if isinstance(facts, dict):
        labels = {name: _large(arrays[key]) for name, key in facts["labels"].items()}
        return Pattern(labels, arrays[facts["truth"]])
    return tuple(
        Product({name: operators[place] for name, place in factors}, weight)
        for factors, weight in facts
    )
