"""Codebooks: what the documentation of data says of its columns, which a draft may declare.

A codebook is public, and no value is read for it. Formats are read by ``dpsql.catalog.codebooks``.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpsql.errors import printable
from dpsql.records import dataclass, field

MOST_WHOLE = 10_000
"""Whole numbers of a domain; of more, bounds are declared."""
LARGEST = 2**53
"""The largest number of a catalog."""
MOST_LISTED = 1000
"""Values of a list that is written into a draft."""
MOST_NOTE = 100
"""Characters of a note that is written into a draft."""


@dataclass(frozen=True, slots=True)
class BookColumn:
    """A column as a codebook describes it: its type, its values or its ends, and NULL.

    ``labels`` are what codes stand for, as (code, label), ``missing`` the fields that hold no
    value, and ``note`` what is said of the column in words. ``step`` is what decimals with two ends
    are apart.
    """

    type: str
    values: tuple[Any, ...] = ()
    least: Any = None
    most: Any = None
    null: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    note: str = ""
    step: float | None = None

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
        if self.type == "decimal":
            return {} if self.step is None else {"domain": ends, "step": self.step}
        if self.type == "date":
            return {"domain": ends, "by": "month"} if all(map(_is_day, ends)) else {}
        is_number = all(type(each) in (int, float) and abs(each) <= LARGEST for each in ends)
        if self.type not in ("integer", "number") or not is_number or ends[0] >= ends[1]:
            return {}
        if self.type == "integer" and all(type(each) is int for each in ends):
            return {"domain" if ends[1] - ends[0] <= MOST_WHOLE else "bounds": ends}
        return {"bounds": ends}

    def remark(self, missing: Iterable[str] = ()) -> str:
        """Return what else is said of the column, but for words that the file declares missing.

        >>> BookColumn("integer", missing=("9", "NA"), note="Age\\nin years").remark(["NA"])
        'Age in years; missing there: 9'
        """
        note = printable(" ".join(self.note.split()))
        note = note if len(note) <= MOST_NOTE else f"{note[:MOST_NOTE]}..."
        lost = ", ".join(map(printable, sorted({*self.missing} - {*missing})))
        return "; ".join([*([note] if note else []), *([f"missing there: {lost}"] if lost else [])])


def _is_day(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(dt.date.fromisoformat(value))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Codebook:
    """Columns by table and name, both case-folded; a format that names no table has one, "".

    >>> TEXT = BookColumn("text")
    >>> two = {"a": {"x": BookColumn("date"), "y": TEXT}, "b": {"x": TEXT}}
    >>> [sorted(Codebook(two).of(name)) for name in ("a", "B.csv", "c")]
    [['x', 'y'], ['x'], ['y']]
    """

    tables: Mapping[str, Mapping[str, BookColumn]] = field(default_factory=dict)

    def of(self, table: str) -> Mapping[str, BookColumn]:
        """Return the columns of a table; where none has its name, those on which all agree."""
        own = self.tables.get(table.casefold(), self.tables.get(table.casefold().split(".")[0]))
        if own is not None:
            return own
        said: dict[str, list[BookColumn]] = {}
        for columns in self.tables.values():
            for name, column in columns.items():
                said.setdefault(name, []).append(column)
        return {name: each[0] for name, each in said.items() if each.count(each[0]) == len(each)}


def missing_in(columns: Sequence[str], known: Mapping[str, BookColumn]) -> tuple[str, ...]:
    """Return the words that are missing values in every one of some columns of a table.

    A file declares such words for all of its columns: one that is a value in another column, or
    may be, is not among them.

    >>> both, one = (BookColumn("text", missing=words) for words in (("9", "NA"), ("NA",)))
    >>> book = {"a": both, "b": one}
    >>> missing_in(["A", "b"], book), missing_in(["a", "b", "c"], book)
    (('NA',), ())
    """
    each = [{*known[c].missing} if (c := n.casefold()) in known else set() for n in columns]
    return tuple(sorted(set.intersection(*each))) if each else ()


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        bare = re.compile("[A-Za-z0-9_-]+").fullmatch
        pairs = (f"{k if bare(k) else _toml(k)} = {_toml(v)}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
