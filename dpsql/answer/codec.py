"""Releases and looks as bytes and back: integers, strategies, scales, noisy answers."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra import blocks, operator, ranges
from dpsql.algebra.operator import Operator
from dpsql.errors import OperationalError
from dpsql.files import load_arrays
from dpsql.plan.plan import Part, Plan
from dpsql.records import dataclass, fields
from dpsql.relation.row_view import RowView
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.registry import decode_strategy
from dpsql.workload.cells import decode_resolution, encode_resolution
from dpsql.workload.term import Pattern
from dpsql.workload.workload import Product

if TYPE_CHECKING:
    from dpsql.learn.transcript import Look
    from dpsql.pgm.measurements import Query

FORM = 2
"""The form of releases. Before it, blocks that are paid for together had the noise of the one of
them whose rows add most."""

Array = NDArray[Any]
Keep: TypeAlias = Callable[[Array], str]
"""Keeps an array, and returns the name that it is kept under."""
NUMBER = 10
"""Bytes that a noisy integer takes at most: eight, or the digits of a longer one, compressed."""
ARRAY = 1024
"""Bytes that an array has beside its numbers at most, and a name of what it is of."""


@dataclass(frozen=True, slots=True)
class Release:
    """A published plan with its noisy integers, and the ledger entry that paid for it.

    ``scopes`` name, part by part, the catalog and the version of the data that were measured.
    """

    plan: Plan
    values: tuple[tuple[Array, ...], ...]
    ledger_id: str
    seq: int
    head: str
    scopes: tuple[str, ...] = ()


def encode(release: Release) -> bytes:
    """Return a release as the bytes of a zipped archive of arrays."""
    return packed(lambda keep: _facts(release, keep))


def most_bytes(plan: Plan) -> int:
    """Return how many bytes the release of a plan has at most: a function of public sizes."""
    numbers = [block.rows for part in plan.parts for block in part.blocks]
    empty = Release(plan, ((),) * len(plan.parts), "", 0, "")
    return len(encode(empty)) + NUMBER * sum(numbers) + ARRAY * len(numbers)


def _facts(release: Release, keep: Keep) -> dict[str, Any]:
    plan = release.plan
    parts = [
        {
            "table": part.table,
            "amount": str(part.amount),
            "rows_per_unit": part.rows_per_unit,
            "units": part.units,
            "view": None if part.view is None else part.view.columns,
            "cells": [
                [name, size, packed.hex()]
                for name, size, packed in (() if part.view is None else part.view.cells)
            ],
            "occupied": part.occupied,
            "resolutions": {
                name: encode_resolution(each, keep) for name, each in part.resolutions.items()
            },
            "strategy": part.strategy.encode(keep),
            "values": [keep(value) for value in values],
        }
        for part, values in zip(plan.parts, release.values, strict=True)
    ]
    return {
        "form": FORM,
        "noise": plan.noise,
        "epsilon": str(plan.epsilon),
        "delta": str(plan.delta),
        "rho": None if plan.rho is None else str(plan.rho),
        "parts": parts,
        "joined": plan.joined,
        "receipt": [release.ledger_id, release.seq, release.head],
        "scopes": list(release.scopes),
    }


def decode(body: bytes) -> Release:
    """Return the release that ``encode`` wrote.

    Raises: ValueError, KeyError, TypeError, OSError, BadZipFile for anything else; DataError or
    OperationalError where its noise law is not installed any more, or its noise is not known.
    """
    facts, arrays = unpacked(body)
    law(facts["noise"])
    form = facts.get("form", 1)
    parts, values = [], []
    for item in facts["parts"]:
        strategy = decode_strategy({"noise": facts["noise"], **item["strategy"]}, arrays)
        resolutions = {
            name: decode_resolution(each, arrays) for name, each in item["resolutions"].items()
        }
        parts.append(
            Part(
                table=item["table"],
                strategy=strategy,
                resolutions=resolutions,
                amount=Fraction(item["amount"]),
                rows_per_unit=item["rows_per_unit"],
                units=item["units"],
                view=_view_of(item),
                occupied=item.get("occupied", False),
            )
        )
        if form < 2 and strategy.is_joint and len(set(parts[-1].multipliers)) > 1:
            raise OperationalError("E_NOISE", "the noise of a release of before is not told")
        values.append(tuple(_integers(arrays[key]) for key in item["values"]))
    rho = None if facts["rho"] is None else Fraction(facts["rho"])
    plan = Plan(
        *(tuple(parts), facts["noise"], Fraction(facts["epsilon"]), Fraction(facts["delta"]), rho),
        joined=facts.get("joined", False),  # each part by itself, as it was published
    )
    scopes = tuple(facts.get("scopes", ()))
    ledger_id, seq, head = facts["receipt"]
    return Release(plan, tuple(values), ledger_id, seq, head, scopes)


def _view_of(item: dict[str, Any]) -> RowView | None:
    """The rows that counted; in releases of before, those of all cells."""
    if item.get("view") is None:
        return None
    cells = ((name, size, bytes.fromhex(packed)) for name, size, packed in item.get("cells", ()))
    return RowView(tuple(item["view"]), tuple(cells))


def packed(write: Callable[[Keep], dict[str, Any]]) -> bytes:
    """Return plain facts as bytes, with the arrays that ``write`` keeps apart, by name."""
    arrays: dict[str, Array] = {}

    def keep(array: Array) -> str:
        name = f"x{len(arrays)}"
        arrays[name] = array.astype(np.str_) if array.dtype == object else array
        return name

    facts = write(keep)
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    return zipped(arrays)


def unpacked(body: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the facts and the arrays that were packed. Raises: as ``decode``."""
    arrays = load_arrays(io.BytesIO(body))
    return json.loads(arrays["facts"].tobytes()), arrays


def zipped(arrays: Mapping[str, Array]) -> bytes:
    """Return what ``np.load`` reads; noise hardly compresses, so little effort is made.

    Arrays of any shape, each under its name.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def _integers(array: Array) -> Array:
    if array.dtype.kind == "U":
        return np.array([int(text) for text in array.tolist()], dtype=object)
    return array


OPERATORS: dict[str, type[Operator]] = {
    each.__name__: each
    for each in (
        blocks.Dense,
        blocks.Identity,
        blocks.IdentityTotal,
        blocks.Prefix,
        blocks.Total,
        operator.Columns,
        operator.Weighted,
        ranges.AllRange,
        ranges.Ranges,
        blocks.Haar,
    )
}


def encode_looks(looks: Sequence[Look], keep: Keep) -> dict[str, Any]:
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

    ``arrays["values"]`` (m,) holds the noisy answers of all looks, one after the other, in counts.
    Raises: KeyError, TypeError, ValueError for anything else.
    """
    from dpsql.learn.candidates import rows  # few catalogs have models
    from dpsql.learn.transcript import Look
    from dpsql.pgm.measurements import Measured

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

    def __init__(self, keep: Keep) -> None:
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
    # Rows are mostly zeros, ones and minus ones: an eighth of the bytes.
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
