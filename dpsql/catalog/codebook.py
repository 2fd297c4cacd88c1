"""Codebooks: what the documentation of data says of its columns, which a draft may declare.

A codebook is public, and no value is read for it. Known are Table Schemas and data packages of
Frictionless, JSON Schemas of a row, data dictionaries of REDCap and codebooks of DDI.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dpsql.errors import UsageError, printable
from dpsql.records import dataclass

KNOWN = (
    "known are Table Schemas and datapackage.json of Frictionless, JSON Schemas of a row, data "
    "dictionaries of REDCap (.csv) and codebooks of DDI (.xml)"
)
TYPES = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "date": "date",
    "datetime": "timestamp",
    "date-time": "timestamp",
    "time": "time",
    "year": "integer",
}
"""Declared types, by the names and formats of both kinds of schema."""
MOST_WHOLE = 10_000
"""Whole numbers of a domain; of more, bounds are declared."""
LARGEST = 2**53
"""The largest number of a catalog."""
MOST_LISTED = 1000
"""Values of a list that is written into a draft."""


@dataclass(frozen=True, slots=True)
class BookColumn:
    """A column as a codebook describes it: its type, its values or its ends, and NULL.

    ``labels`` are what codes stand for, as (code, label).
    """

    type: str
    values: tuple[Any, ...] = ()
    least: Any = None
    most: Any = None
    null: bool = False
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def labelled(cls, labels: Sequence[tuple[str, str]], null: bool) -> BookColumn:
        """Return a column of codes that have labels, none of which is for a missing value.

        Two labels of whole numbers with others between them are those of the ends of a scale.

        >>> BookColumn.labelled([("1", "male"), ("2", "female")], True).facts()
        '{ type = "text", labels = { 1 = "male", 2 = "female" }, null = true }'
        >>> BookColumn.labelled([("0", "not at all"), ("10", "fully")], False).facts()
        '{ type = "integer", domain = [0, 10] }'
        """
        codes, texts = [code for code, _ in labels], {label.strip() for _, label in labels}
        numbers = [int(code) for code in codes if re.fullmatch("-?[0-9]{1,15}", code)]
        is_scale = len(numbers) == len(labels) == 2 and abs(numbers[1] - numbers[0]) > 1
        is_plain = len(texts) == len({*codes}) == len(labels) <= MOST_LISTED
        if is_plain and not is_scale:
            return cls("text", null=null, labels=tuple((c, label) for c, label in labels))
        if len(numbers) == len(labels):
            if is_scale:
                return cls("integer", least=min(numbers), most=max(numbers), null=null)
            return cls("integer", tuple(dict.fromkeys(numbers)), null=null)
        return cls("text", tuple(dict.fromkeys(codes)), null=null)

    def facts(self) -> str:
        """Write the column as a catalog declares it, as far as that follows.

        >>> BookColumn("text", ("f", "m")).facts()
        '{ type = "text", domain = ["f", "m"] }'
        >>> BookColumn("integer", least=0, most=120, null=True).facts()
        '{ type = "integer", domain = [0, 120], null = true }'
        """
        said = {"type": self.type, **self._domain(), **({"null": True} if self.null else {})}
        return f"{{ {', '.join(f'{key} = {_toml(value)}' for key, value in said.items())} }}"

    def _domain(self) -> dict[str, Any]:
        if self.labels:
            return {"labels": dict(self.labels)}
        known, ends = {"text": str, "integer": int}.get(self.type), [self.least, self.most]
        if self.type == "boolean":
            return {"domain": [False, True]}
        if known is not None and self.values and all(type(each) is known for each in self.values):
            if len(self.values) > MOST_LISTED or len({*self.values}) < len(self.values):
                return {}
            if known is str or len(self.values) > 2:
                return {"domain": list(self.values)}
            ends = [min(self.values), max(self.values)]
        if self.type == "date":
            return {"domain": ends, "by": "month"} if all(map(_is_day, ends)) else {}
        is_number = all(type(each) in (int, float) and abs(each) <= LARGEST for each in ends)
        if self.type not in ("integer", "number") or not is_number or ends[0] >= ends[1]:
            return {}
        if self.type == "integer" and all(type(each) is int for each in ends):
            return {"domain" if ends[1] - ends[0] <= MOST_WHOLE else "bounds": ends}
        return {"bounds": ends}


def _is_day(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(dt.date.fromisoformat(value))
    except ValueError:
        return False


def read_codebook(path: str | Path) -> dict[str, BookColumn]:
    """Read the columns that a codebook describes, by case-folded name.

    Raises: UsageError (E_DATA) for a file that is no codebook.
    """
    name = printable(Path(path).name)
    reads = {".csv": _read_redcap, ".xml": _read_ddi}
    end = Path(path).suffix.lower()
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        found = dict(reads.get(end, _read_json)(text))
    except FileNotFoundError:
        raise UsageError("E_DATA", f"there is no codebook {name!r}", hint=KNOWN) from None
    except (OSError, ValueError, RecursionError, csv.Error, ElementTree.ParseError):
        what = {".csv": "CSV in UTF-8", ".xml": "XML"}.get(end, "JSON")
        raise UsageError("E_DATA", f"the codebook {name!r} is no {what}", hint=KNOWN) from None
    if not found:
        raise UsageError("E_DATA", f"the codebook {name!r} describes no column", hint=KNOWN)
    return found


def _read_json(text: str) -> Iterator[tuple[str, BookColumn]]:
    yield from _columns(json.loads(text))


FIELDS = {
    "Variable / Field Name": "field_name",
    "Field Type": "field_type",
    "Choices, Calculations, OR Slider Labels": "select_choices_or_calculations",
    "Text Validation Type OR Show Slider Number": "text_validation_type_or_show_slider_number",
    "Text Validation Min": "text_validation_min",
    "Text Validation Max": "text_validation_max",
    "Required Field?": "required_field",
}
"""Headers of a data dictionary of REDCap as it is downloaded, and as its interface has them."""
ANSWERS = {"yesno": (("1", "Yes"), ("0", "No")), "truefalse": (("1", "True"), ("0", "False"))}
TICKED = (("0", "Unchecked"), ("1", "Checked"))


def _read_redcap(text: str) -> Iterator[tuple[str, BookColumn]]:
    """Yield the columns of a data dictionary of REDCap."""
    for row in csv.DictReader(text.splitlines(keepends=True), strict=True):
        said = {FIELDS.get(key or "", key): (each or "") for key, each in row.items()}
        name, kind = said.get("field_name", "").strip(), said.get("field_type", "")
        null = said.get("required_field", "").lower() not in ("y", "true", "1")
        choices = said.get("select_choices_or_calculations", "")
        pairs = [each.partition(",")[::2] for each in choices.split("|") if "," in each]
        labels = [(code.strip(), label.strip()) for code, label in pairs]
        if kind == "checkbox":
            for code, _ in labels:
                named = f"{name}___{code.lower().replace('-', '_')}".casefold()
                yield named, BookColumn.labelled(TICKED, False)
        elif kind in ("radio", "dropdown") and labels:
            yield name.casefold(), BookColumn.labelled(labels, null)
        elif kind in ANSWERS:
            yield name.casefold(), BookColumn.labelled(ANSWERS[kind], null)
        elif kind == "slider":
            yield name.casefold(), BookColumn("integer", least=0, most=100, null=null)
        elif kind in ("text", "calc") and name:
            checked = said.get("text_validation_type_or_show_slider_number", "").split("_")[0]
            checked = "number" if kind == "calc" else checked
            found = TYPES.get(checked, "text")
            ends = (said.get(f"text_validation_{end}", "") for end in ("min", "max"))
            least, most = (_end(each, found) for each in ends)
            yield name.casefold(), BookColumn(found, (), least, most, null)


def _read_ddi(text: str) -> Iterator[tuple[str, BookColumn]]:
    """Yield the variables of a codebook of DDI, of any version that has ``var``."""
    root = ElementTree.fromstring(text)
    for each in root.iter():
        each.tag = str(each.tag).rpartition("}")[2]
    for var in root.iter("var"):
        invalid = {item.get("VALUE") for item in var.iterfind("invalrng/item")}
        listed = [
            (_said(each, "catValu"), _said(each, "labl"), each.get("missing") == "Y")
            for each in var.iterfind("catgry")
        ]
        labels = [
            (c, label) for c, label, gone in listed if label and not gone and c not in invalid
        ]
        null = bool(invalid) or len(labels) < len(listed)
        name, form = var.get("name", "").casefold(), var.find("varFormat")
        ends = var.find("valrng/range")
        is_text = form is not None and form.get("type") == "character"
        if labels:
            yield name, BookColumn.labelled(labels, null)
        elif is_text:
            yield name, BookColumn("text", null=null)
        elif form is not None or ends is not None:
            found = "integer" if var.get("dcml") == "0" else "number"
            least, most = (
                None if ends is None else _end(ends.get(key, ""), found) for key in ("min", "max")
            )
            yield name, BookColumn(found, (), least, most, null)


def _said(element: ElementTree.Element, tag: str) -> str:
    return " ".join((element.findtext(tag) or "").split())


def _end(text: str, kind: str) -> Any:
    """Return the end of a range as a value of a type; None where it is none."""
    if kind in ("date", "timestamp"):
        return text or None
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() and abs(number) <= LARGEST else number


def _columns(raw: Any) -> Iterator[tuple[str, BookColumn]]:
    if not isinstance(raw, dict):
        return
    for each in _listed(raw.get("resources")):
        yield from _columns(each.get("schema"))
    for each in _listed(raw.get("fields")):
        said = {"type": "string", **each, **_section(each.get("constraints"))}
        yield from _described(each.get("name"), said)
    row = _section(raw.get("items")) or raw
    for name, each in _section(row.get("properties")).items():
        yield from _described(name, _section(each))


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _section(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _described(name: Any, said: Mapping[str, Any]) -> Iterator[tuple[str, BookColumn]]:
    """Yield a column of either kind of schema; one of an unknown type is left to the draft."""
    kinds = said.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    is_null, named = "null" in kinds, [each for each in kinds if each != "null"]
    kind = said.get("format") if said.get("format") in TYPES else (named or [None])[0]
    if not isinstance(name, str) or not isinstance(kind, str) or kind not in TYPES:
        return
    values = said.get("enum") if isinstance(said.get("enum"), list) else []
    listed = tuple(each for each in values or () if each is not None)
    least, most = said.get("minimum"), said.get("maximum")
    is_null = is_null or len(listed) < len(values or ())
    yield name.casefold(), BookColumn(TYPES[kind], listed, least, most, is_null)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        bare = re.compile("[A-Za-z0-9_-]+").fullmatch
        pairs = (f"{k if bare(k) else _toml(k)} = {_toml(v)}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
