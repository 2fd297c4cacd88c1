"""Places in a catalog: complaints that name them, and the numbers written there."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from dpsql.errors import CatalogError, nearest, printable
from dpsql.records import dataclass

MAX_BOUND = 2**53
"""Up to here every integer is a float, so that exact values and those of DuckDB agree."""
MAX_PLACES = 30
"""Decimal places of a number, so that 1e-1000000 becomes no fraction of a million digits."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a catalog, which knows how to complain about what stands there."""

    path: Path
    table: str | None = None
    column: str | None = None

    def fail(self, problem: str, remedy: str, code: str = "E_POLICY") -> NoReturn:
        """Raise the CatalogError that names this place, its line, the problem and the remedy.

        Args:
            problem: begins with the key that it is about, so that its line is found.
            remedy: becomes the hint: a line that would be accepted.
            code: of the error.
        """
        parts, line = [printable(self.path.name or str(self.path))], None
        if self.path.suffix:
            from dpsql.catalog.read_line import find_line  # most catalogs have no fault

            line = find_line(self.path, self.table, self.column, problem)
        parts += [f"line {line}"] if line is not None else []
        parts += [f"table {self.table!r}"] if self.table is not None else []
        parts += [f"column {self.column!r}"] if self.column is not None else []
        raise CatalogError(code, f"{', '.join(parts)}: {problem}", hint=remedy) from None

    def check_keys(self, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """Refuse keys that are not known: a typo must never mean a default."""
        for key in given:
            if key not in known:
                near = nearest(key, known)
                others = f"known keys: {', '.join(known)}" if known else "it has no keys"
                remedy = f"did you mean {near!r}?" if near else others
                self.fail(f"unknown key {key!r}", remedy)


def read_pair(place: Place, key: str, given: Any) -> tuple[Fraction, Fraction]:
    """Read ``[lowest, highest]``.

    Args:
        place: where in the catalog a complaint points to.
        key: name that the pair has in the catalog.
        given: a list of two numbers; which of them is larger is not looked at here.
    """
    if not isinstance(given, list) or len(given) != 2:
        place.fail(f"{key} = {show(given)}", f"write {key} = [lowest, highest]")
    lo, hi = (read_number(place, key, value) for value in given)
    return lo, hi


def read_number(place: Place, key: str, value: Any) -> Fraction:
    """Read a finite number of at most 2^53 exactly; TOML knows inf and nan.

    Args:
        place: where in the catalog a complaint points to.
        key: name that the number has in the catalog.
        value: int, or Decimal as TOML's floats are read here, so that none is rounded.
    """
    usable = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if not usable or (isinstance(value, Decimal) and not value.is_finite()):
        place.fail(f"{key}: {show(value)} is not a finite number", f"{key} = [0, 100]")
    if isinstance(value, Decimal) and value and not -MAX_PLACES <= value.adjusted() <= MAX_PLACES:
        place.fail(f"{key}: {show(value)} is not usable", f"at most {MAX_PLACES} decimal places")
    exact = Fraction(value) if value else Fraction(0)
    if abs(exact) > MAX_BOUND:
        place.fail(f"{key}: {show(value)} is too large", "at most 2^53 in absolute value")
    return exact


def show(value: Any) -> str:
    """Write a value for a message, cut short."""
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
