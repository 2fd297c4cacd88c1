"""Conditions over several columns kept whole: a truth table over classes of their cells."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ProgrammingError, Span

MAX_CELLS = 1 << 20
"""Most combinations of classes of one pattern."""

MAX_PRODUCTS = 256
"""Most products that one pattern may be written as."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Rows whose classes have ``truth``; a row is counted once, or not at all.

    ``labels`` gives the class of every cell, column by column; ``truth`` has an axis for each of
    these columns, in the same order.
    """

    labels: Mapping[str, NDArray[np.int64]]
    truth: NDArray[np.bool_]
    span: Span | None = field(default=None, repr=False)

    @property
    def key(self) -> str:
        """A digest of what is counted."""
        digest = hashlib.sha256(repr((list(self.labels), self.truth.shape)).encode())
        for labels in self.labels.values():
            digest.update(np.ascontiguousarray(labels, dtype=np.int64).tobytes())
        digest.update(np.ascontiguousarray(self.truth).tobytes())
        return digest.hexdigest()

    def within(self, masks: Mapping[str, NDArray[np.bool_]]) -> Pattern:
        """The pattern for rows whose cells are also in masks over single columns.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        labels, truth = dict(self.labels), self.truth
        for name, mask in masks.items():
            if name in labels:
                axis = list(labels).index(name)
                labels[name] = np.where(mask, labels[name], truth.shape[axis])
                truth = np.insert(truth, truth.shape[axis], False, axis=axis)
            else:
                labels[name] = np.where(mask, 0, 1)
                truth = np.stack([truth, np.zeros_like(truth)], axis=-1)
            if truth.size > MAX_CELLS:
                raise too_large(truth.size, labels, self.span)
        return Pattern(labels, truth, self.span)

    def joined(self, other: Pattern) -> Pattern | None:
        """Both patterns, over different columns; None where that takes too many combinations."""
        if self.truth.size * other.truth.size > MAX_CELLS:
            return None
        truth = np.multiply.outer(self.truth, other.truth)
        return Pattern({**self.labels, **other.labels}, truth, self.span)


def too_large(count: int, names: Mapping[str, object], span: Span | None) -> ProgrammingError:
    """Return the refusal of a condition over too many combinations of values."""
    return ProgrammingError(
        "E_TOO_LARGE",
        f"the condition depends on {count:,} combinations of values of {', '.join(names)}",
        hint=f"at most {MAX_CELLS:,}; compare with constants, or in separate statements",
        span=span,
    )


def refuse_pattern(pattern: Pattern, units: bool = False) -> NoReturn:
    """Refuse to measure a condition that takes too many products; ``units`` cannot be learned.

    Raises: ProgrammingError (E_PREDICATE).
    """
    raise ProgrammingError(
        "E_PREDICATE",
        f"the condition over {', '.join(pattern.labels)} takes more than {MAX_PRODUCTS} products",
        hint="join conditions on single columns by AND"
        + ("" if units else ", or learn it: mechanism = 'rap'"),
        span=pattern.span,
    )


def at_least(predicates: Mapping[str, NDArray[np.int64]], t: int) -> Pattern:
    """The rows for which at least ``t`` of the predicates hold: t = 1 is OR, all of them AND.

    A column has a 0/1 vector over its cells, or several as rows. Source: RAP (Aydore et al. 2021).
    Raises: ProgrammingError (E_WORKLOAD, E_TOO_LARGE).
    """
    rows = {name: np.atleast_2d(np.asarray(v)) for name, v in predicates.items()}
    count = sum(len(v) for v in rows.values())
    if not 1 <= t <= count or any(not np.isin(v, (0, 1)).all() for v in rows.values()):
        raise ProgrammingError(
            "E_WORKLOAD",
            f"at least {t} of {count} predicates is no threshold query",
            hint="give 0/1 vectors, and a threshold between 1 and their number",
        )
    labels = {name: v.sum(axis=0).astype(np.int64) for name, v in rows.items()}
    shape = tuple(len(v) + 1 for v in rows.values())
    if math.prod(shape) > MAX_CELLS:
        raise too_large(math.prod(shape), labels, None)
    return Pattern(labels, np.indices(shape).sum(axis=0) >= t)
