"""Read what is declared of one column's values, and complain where it stands in the catalog."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from dpsql.catalog.domain import (
    Bins,
    BoundedBins,
    DecimalRange,
    Domain,
    IntegerRange,
    Labels,
    Periods,
    Value,
    Values,
)
from dpsql.catalog.read_calendar import (
    MAX_CELLS,
    read_other_day,
    read_periods,
    read_spans,
    read_times,
    read_zone,
)
from dpsql.catalog.read_place import MAX_BOUND, Place, read_number, read_pair, show
from dpsql.records import replace

MAX_BINS = 100_000
"""Bins of one column, each with an edge that is an exact fraction."""
MOST_DIGITS = 15
"""Digits of a decimal number: a double tells all of so many apart."""


def read_domain(place: Place, kind: str, facts: Mapping[str, Any]) -> Domain | None:
    """Read ``domain``, ``domain_file``, ``bins`` and ``by``; None without.

    Args:
        place: where in the catalog a complaint points to.
        kind: declared type of the column, which decides what a domain may hold.
        facts: keys of the column's table in TOML.

    Returns: None for a column that declares neither cells nor values, such as a measure.
    """
    if "labels" in facts:
        return _read_labels(place, kind, facts)
    if "domain" in facts and "domain_file" in facts:
        place.fail("domain and domain_file exclude each other", "keep one of them")
    if "by" in facts and kind not in ("date", "timestamp", "time"):
        remedy = 'bins = 100, or type = "date"'
        place.fail("`by` belongs to dates, timestamps and times of day", remedy)
    if "zone" in facts and kind != "timestamp":
        place.fail("`zone` belongs to timestamps", 'type = "timestamp"')
    for key in ("bins", "step"):
        if kind == "decimal" and key == "step":
            continue
        if key in facts and kind not in ("integer", "number"):
            place.fail(f"`{key}` on a {kind} column", f"{key} belong to integer and number columns")
    if "bins" in facts and "step" in facts:
        place.fail("bins and step exclude each other", "keep one of them")
    if kind != "decimal" and ("bins" in facts or "step" in facts):
        bounded = "bounds" in facts
        span = facts.get("bounds" if bounded else "domain")
        given = facts["bins"] if "bins" in facts else _count_steps(place, span, facts["step"])
        bins = _read_bins(place, kind, given, span)
        return BoundedBins(bins.edges) if bounded else bins
    if "domain_file" in facts:
        if kind != "text":
            place.fail("domain_file on a column that is not text", "domain_file is for text")
        return Values(_check_texts(place, _read_lines(place, facts["domain_file"])))
    if "domain" not in facts:
        if "by" in facts:
            place.fail("`by` without a domain", 'domain = ["2020-01-01", "2024-12-31"]')
        return Values((False, True)) if kind == "boolean" else None
    given = facts["domain"]
    if not isinstance(given, list) or not given:
        place.fail(f"domain = {show(given)}", "a list of values, or [lowest, highest]")
    match kind:
        case "integer":
            return _read_integers(place, given)
        case "text":
            return Values(_check_texts(place, given))
        case "boolean":
            if sorted(map(repr, given)) != ["False", "True"]:
                place.fail(f"domain = {show(given)}", "domain = [false, true]")
            return Values(tuple(given))
        case "date":
            return read_periods(place, given, facts.get("by", "day"))
        case "decimal":
            return _read_decimals(place, given, facts.get("step"))
        case "timestamp":
            zone = read_zone(place, facts.get("zone", "UTC"))
            spans = read_spans(place, given, facts.get("by", "hour"), zone)
            return replace(spans, has_zone="zone" in facts)
        case "time":
            return read_times(place, given, facts.get("by", "hour"))
        case _:
            place.fail(
                "a number column needs bins or bounds",
                "domain = [0, 500], bins = 100  (or bounds = [0, 500] for a measure)",
            )


def _read_labels(place: Place, kind: str, facts: Mapping[str, Any]) -> Labels:
    """Read the labels of stored codes: numbers where all are written as whole ones."""
    given, example = facts["labels"], 'labels = { 1 = "male", 2 = "female" }'
    extra = [key for key in ("domain", "domain_file", "bins", "step", "by") if key in facts]
    if extra:
        place.fail(f"labels and {extra[0]} exclude each other", "labels are the domain")
    if kind != "text":
        place.fail(f"labels on a {kind} column", f'type = "text", {example}')
    if not isinstance(given, dict) or not given:
        place.fail(f"labels = {show(given)}", example)
    labels = _check_texts(place, list(given.values()))
    numbers = [int(code) for code in given if re.fullmatch("0|-?[1-9][0-9]{0,14}", code)]
    if len(numbers) == len(given):
        return Labels(labels, tuple(numbers))
    return Labels(labels, _check_texts(place, list(given)))


def _read_decimals(place: Place, given: list[Any], step: Any) -> DecimalRange | Values:
    """Read decimal numbers: a range with a step, or a list."""
    numbers = [_read_decimal(place, "domain", value) for value in given]
    if step is None:
        if len(numbers) == 2:
            place.fail("a range of decimals needs a step", "step = 0.01")
        if len(set(numbers)) != len(numbers):
            place.fail("domain repeats a value", "each value once")
        return Values(tuple(numbers))
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        place.fail(f"domain = {show(given)}", "domain = [lowest, highest]")
    lo, hi = numbers
    width = _read_decimal(place, "step", step)
    if width <= 0 or (hi - lo) % width:
        place.fail(f"step = {show(step)}", f"a step that divides {hi - lo} into whole steps")
    count = int((hi - lo) / width) + 1
    if count > MAX_CELLS:
        place.fail(f"domain has {count} cells", 'type = "number", bins = 100')
    places = max(0, -int(lo.as_tuple().exponent), -int(width.as_tuple().exponent))
    lo, width = (each.quantize(Decimal(1).scaleb(-places)) for each in (lo, width))
    return DecimalRange(lo, width, count)


def _read_decimal(place: Place, key: str, value: Any) -> Decimal:
    """Read a decimal number of at most 15 digits, which a double tells from its neighbours."""
    read_number(place, key, value)
    found = Decimal(value).normalize()
    exponent = int(found.as_tuple().exponent)
    if exponent < -MOST_DIGITS or abs(found.scaleb(-min(0, exponent))) >= 10**MOST_DIGITS:
        place.fail(f"{key}: {show(value)} has too many digits", f"at most {MOST_DIGITS}")
    return found.quantize(Decimal(1)) if exponent > 0 else found


def _count_steps(place: Place, span: Any, given: Any) -> int:
    """Count the bins of one width."""
    lo, hi = read_pair(place, "domain", span)
    step = read_number(place, "step", given)
    if step <= 0 or (hi - lo) % step:
        place.fail(f"step = {show(given)}", f"a width that divides {hi - lo} into whole bins")
    return int((hi - lo) / step)


def _read_bins(place: Place, kind: str, bins: Any, span: Any) -> Bins:
    if isinstance(bins, list):
        edges = tuple(read_number(place, "bins", value) for value in bins)
        if len(edges) < 2 or any(float(a) >= float(b) for a, b in pairwise(edges)):
            place.fail("bin edges are not increasing", "bins = [0, 10, 50, 100]")
        if kind == "integer" and any(edge.denominator != 1 for edge in edges):
            place.fail("bin edges of an integer column are not integers", "bins = [0, 10, 50, 100]")
        if span is not None:
            lo, hi = read_pair(place, "domain", span)
            if (lo, hi) != (edges[0], edges[-1]):
                place.fail("bins do not span the domain", "leave the domain out")
        return Bins(edges)
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= MAX_BINS:
        place.fail(f"bins = {show(bins)}", f"a number from 1 to {MAX_BINS}, or increasing edges")
    lo, hi = read_pair(place, "domain", span)
    if lo >= hi:
        place.fail(f"domain = [{lo}, {hi}]", "domain = [lowest, highest]")
    edges = tuple(lo + (hi - lo) * j / bins for j in range(bins + 1))
    if kind == "integer":
        edges = tuple(Fraction(math.ceil(edge)) for edge in edges)
        if (edges[0], edges[-1]) != (lo, hi):
            place.fail("the domain of an integer column is not of integers", "domain = [0, 99]")
    if any(float(a) >= float(b) for a, b in pairwise(edges)):
        place.fail(f"{bins} bins are too many for the domain", "use fewer bins, or none")
    return Bins(edges)


def _read_integers(place: Place, given: list[Any]) -> IntegerRange | Values:
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_BOUND:
            place.fail(f"domain: {show(value)} is not a usable integer", "domain = [0, 99]")
    if len(given) == 2:
        lo, hi = given
        if lo > hi:
            place.fail("domain is reversed", f"domain = [{hi}, {lo}]")
        if hi - lo >= MAX_CELLS:
            place.fail(f"domain has {hi - lo + 1} cells", "add bins = 100")
        return IntegerRange(lo, hi)
    if len(set(given)) != len(given):
        place.fail("domain repeats a value", "each value once")
    return Values(tuple(given))


def _check_texts(place: Place, given: list[Any]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for value in given:
        if not isinstance(value, str):
            place.fail(f"domain: {show(value)} is not text", 'domain = ["a", "b"]')
        if "\0" in value:
            place.fail("domain: a value holds a NUL character", "leave it out")
        key = _fold(value)
        if key in seen:
            place.fail(
                f"domain: {value!r} and {seen[key]!r} are the same text",
                "values must differ in more than spaces around them or Unicode form",
            )
        seen[key] = value
    return tuple(given)


def _fold(value: object) -> str:
    """Return the part of a value in which two must differ to be told apart for certain."""
    return unicodedata.normalize("NFC", str(value)).strip()


def _read_lines(place: Place, file: Any) -> list[str]:
    if not isinstance(file, str) or not file:
        place.fail(f"domain_file = {show(file)}", 'domain_file = "values.txt"')
    try:
        text = (place.path.resolve().parent / file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError):
        place.fail(f"domain_file {file!r} cannot be read", "one value per line, UTF-8")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    lines = lines[:-1] if lines and lines[-1] == "" else lines
    if not lines:
        place.fail(f"domain_file {file!r} is empty", "one value per line")
    return lines


def read_other(place: Place, kind: str, domain: Domain | None, given: Any) -> Value:
    """Read the label of the cell for all other values; None when there is none.

    Args:
        place: where in the catalog a complaint points to.
        kind: declared type of the column.
        domain: declared values, which the label must not read as; None where there are none.
        given: ``other`` of the catalog: true for the usual label of the type, false for none, or a
            label.
    """
    if given is False:
        return None
    if kind == "date" and isinstance(domain, Periods):
        return read_other_day(place, domain, given)
    if kind not in ("text", "integer") or isinstance(domain, Bins) or domain is None:
        remedy = "other belongs to text, integer and date domains"
        place.fail("`other` needs a list of values", remedy)
    if given is True and kind == "text":
        given = "other"
    expected = str if kind == "text" else int
    if isinstance(given, bool) or not isinstance(given, expected):
        place.fail(f"other = {show(given)}", 'other = true for text, or a value such as "Rest"')
    if isinstance(given, int) and abs(given) > MAX_BOUND:
        place.fail(f"other = {show(given)} is too large", "at most 2^53 in absolute value")
    if isinstance(given, str) and "\0" in given:
        place.fail("other holds a NUL character", "leave it out")
    if _fold(given) in map(_fold, domain.representatives):
        place.fail(
            f"other = {show(given)} is also a domain value", 'choose a label, other = "Rest"'
        )
    return given
