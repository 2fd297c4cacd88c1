"""Read what is to be found of a column: ``domain = "discover"`` or ``bounds = "discover"``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsql.catalog.discovery import Sought
from dpsql.catalog.domain import PERIODS, Value, Values
from dpsql.catalog.read_domain import read_other
from dpsql.catalog.read_place import Place, show

DISCOVER = "discover"
LONGEST_LABEL = 1000


def is_sought(facts: Mapping[str, Any]) -> bool:
    """True if a column is declared to be without keys or bounds so far."""
    return DISCOVER in (facts.get("domain"), facts.get("bounds")) or "max_keys" in facts


def read_sought(
    place: Place, kind: str, max_rows: int, facts: Mapping[str, Any]
) -> tuple[Sought, Value]:
    """Read a column whose domain or bounds are to be found, and the label of other values.

    Args:
        place: where in the catalog a complaint points to.
        kind: declared type of the column.
        max_rows: rows of one unit that count, of which no more than this have keys.
        facts: keys of the column's table in TOML.

    Raises: CatalogError (E_POLICY).
    """
    if facts.get("bounds") == DISCOVER:
        _refuse_beside(place, facts, ("type", "bounds", "null"))
        if kind not in ("integer", "number"):
            place.fail(f'bounds = "discover" on a {kind} column', "integer and number have bounds")
        return Sought("bounds"), None
    if facts.get("domain") != DISCOVER:
        place.fail("max_keys without keys to find", 'domain = "discover", max_keys = 5')
    _refuse_beside(place, facts, ("type", "domain", "max_keys", "by", "other", "null"))
    if kind not in ("text", "integer", "date"):
        place.fail(f'domain = "discover" on a {kind} column', "text, integer and date have keys")
    by = facts.get("by", "day")
    if "by" in facts and kind != "date":
        place.fail("`by` belongs to date columns", "leave it out")
    if by not in PERIODS:
        place.fail(f"by = {show(by)}", f"one of {', '.join(PERIODS)}")
    return Sought("keys", _read_most(place, max_rows, facts), by), _read_label(place, kind, facts)


def _refuse_beside(place: Place, facts: Mapping[str, Any], fitting: tuple[str, ...]) -> None:
    for key in facts:
        if key not in fitting:
            place.fail(f'"discover" and {key} exclude each other', "keep one of them")


def _read_most(place: Place, max_rows: int, facts: Mapping[str, Any]) -> int:
    most = facts.get("max_keys", max_rows)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= max_rows:
        what = f"from 1 to {max_rows}: a privacy unit has no more keys than rows"
        place.fail(f"max_keys = {show(most)}", what)
    return most


def _read_label(place: Place, kind: str, facts: Mapping[str, Any]) -> Value:
    """The label of the cell for all that is not found; text columns always have one."""
    given = facts.get("other", kind == "text")
    if kind == "text" and given is False:
        place.fail("other = false beside keys to find", "what is not found has to count somewhere")
    if isinstance(given, str) and (not given.isprintable() or len(given) > LONGEST_LABEL):
        place.fail(f"other = {show(given)}", 'a printable text, such as "other"')
    return read_other(place, kind, Values(()), given)
