"""Data dictionaries of REDCap, as they are downloaded and as its interface has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpsql.catalog.codebook import BookColumn
from dpsql.catalog.codebooks.values import TYPES, end
from dpsql.records import replace

NAME = "data dictionaries of REDCap (.csv)"
SYNTAX = "rows"
FIELDS = {
    "Variable / Field Name": "field_name",
    "Field Type": "field_type",
    "Field Label": "field_label",
    "Choices, Calculations, OR Slider Labels": "select_choices_or_calculations",
    "Text Validation Type OR Show Slider Number": "text_validation_type_or_show_slider_number",
    "Text Validation Min": "text_validation_min",
    "Text Validation Max": "text_validation_max",
    "Required Field?": "required_field",
}
"""Headers of a downloaded dictionary, and what the interface calls them."""
ANSWERS = {"yesno": (("1", "Yes"), ("0", "No")), "truefalse": (("1", "True"), ("0", "False"))}
TICKED = (("0", "Unchecked"), ("1", "Checked"))


def read(parsed: Any) -> Iterator[tuple[str, str, BookColumn]]:
    """Yield the columns of a data dictionary."""
    for row in parsed:
        said = {FIELDS.get(key, key): each for key, each in row.items()}
        for name, found in _columns(said):
            yield "", name, replace(found, note=said.get("field_label", ""))


def _columns(said: Mapping[str, str]) -> Iterator[tuple[str, BookColumn]]:
    name, kind = said.get("field_name", "").strip(), said.get("field_type", "")
    null = said.get("required_field", "").lower() not in ("y", "true", "1")
    choices = said.get("select_choices_or_calculations", "")
    pairs = [each.partition(",")[::2] for each in choices.split("|") if "," in each]
    labels = [(code.strip(), label.strip()) for code, label in pairs]
    if kind == "checkbox":
        for code, _ in labels:
            yield f"{name}___{code.lower().replace('-', '_')}", BookColumn.labelled(TICKED, False)
    elif kind in ("radio", "dropdown") and labels:
        yield name, BookColumn.labelled(labels, null)
    elif kind in ANSWERS:
        yield name, BookColumn.labelled(ANSWERS[kind], null)
    elif kind == "slider":
        yield name, BookColumn("integer", least=0, most=100, null=null)
    elif kind in ("text", "calc") and name:
        checked = said.get("text_validation_type_or_show_slider_number", "").split("_")[0]
        found = TYPES.get("number" if kind == "calc" else checked, "text")
        ends = (said.get(f"text_validation_{each}", "") for each in ("min", "max"))
        least, most = (end(each, found) for each in ends)
        yield name, BookColumn(found, (), least, most, null)
