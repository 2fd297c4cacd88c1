"""Codebooks of DDI, of any version that has ``var``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from dpsql.catalog.codebook import BookColumn
from dpsql.catalog.codebooks.values import end, nonempty_fields
from dpsql.records import replace

NAME = "codebooks of DDI (.xml)"
SYNTAX = "xml"


def read(parsed: Any) -> Iterator[tuple[str, str, BookColumn]]:
    """Yield the variables of a codebook."""
    for var in parsed.iter("var"):
        invalid = [item.get("VALUE") or "" for item in var.iterfind("invalrng/item")]
        listed = [
            (_said(each, "catValu"), _said(each, "labl"), each.get("missing") == "Y")
            for each in var.iterfind("catgry")
        ]
        labels = [
            (c, label) for c, label, gone in listed if label and not gone and c not in invalid
        ]
        lost = [*invalid, *(code for code, _, gone in listed if gone)]
        found = _variable(var, labels, bool(invalid) or len(labels) < len(listed))
        if found is not None and var.get("name"):
            yield (
                "",
                var.get("name"),
                replace(found, missing=nonempty_fields(lost), note=_said(var, "labl")),
            )


def _variable(
    var: ElementTree.Element, labels: list[tuple[str, str]], null: bool
) -> BookColumn | None:
    form, ends = var.find("varFormat"), var.find("valrng/range")
    if labels:
        return BookColumn.labelled(labels, null)
    if form is not None and form.get("type") == "character":
        return BookColumn("text", null=null)
    if form is None and ends is None:
        return None
    kind = "integer" if var.get("dcml") == "0" else "number"
    least, most = (None if ends is None else end(ends.get(key, ""), kind) for key in ("min", "max"))
    return BookColumn(kind, (), least, most, null)


def _said(element: ElementTree.Element, tag: str) -> str:
    return " ".join((element.findtext(tag) or "").split())
