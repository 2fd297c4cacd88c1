"""Files of SPSS, Stata and SAS: read by pyreadstat, some rows at a time.

Numbers are doubles there, and formats say which of them are days or times. Values that the file
itself declares missing are missing, and so is an empty text.

Guarantee: texts are read as bytes, by an encoding that has a character for each, and every one of
them is decoded by itself; days and times are worked out of doubles, one by one. So no value can
keep the others from being read.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyreadstat
from pyreadstat import PyreadstatError, ReadstatError

from dpsql.catalog.codebook import BookColumn
from dpsql.catalog.delimited import Delimited
from dpsql.interrupts import check
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.privacy.vault.files.arrow_rows import ROWS
from dpsql.privacy.vault.files.timestamps import INFINITE, MIDNIGHT
from dpsql.records import dataclass, replace

READ: Mapping[str, Callable[..., Any]] = {
    ".sav": pyreadstat.read_sav,
    ".zsav": pyreadstat.read_sav,
    ".por": pyreadstat.read_por,
    ".dta": pyreadstat.read_dta,
    ".sas7bdat": pyreadstat.read_sas7bdat,
    ".xpt": pyreadstat.read_xport,
}
"""Functions that read a file, by the end of its name."""
BYTES = "ISO-8859-1"
"""The encoding in which bytes are characters."""
AT_ONCE = 16 * ROWS
"""Rows that are read at once: to find the first of them, all before are gone through."""
WHOLE = ("int8", "int16", "int32")
"""Types of numbers that are whole ones."""
SPSS, SAS = -141_428, -3_653
"""The days from 1970 to the first one of SPSS, in 1582, and of SAS and Stata, in 1960."""
Unit = tuple[pa.DataType, int, int]
"""A type, the first day, and how many parts of it a day has."""
OF_SPSS: tuple[tuple[str, Unit], ...] = (
    (r"(A|E|J|S)?DATE\d.*|(MO|Q|WK)YR.*", (pa.date32(), SPSS, 86_400)),
    (r"DATETIME.*|YMDHMS.*", (pa.timestamp("us"), SPSS, 86_400)),
    (r"M?TIME.*", (pa.time64("us"), 0, 86_400)),
)
OF_STATA: tuple[tuple[str, Unit], ...] = (
    (r"%-?(td|d).*", (pa.date32(), SAS, 1)),
    (r"%-?tc.*", (pa.timestamp("us"), SAS, 86_400_000)),
)
OF_SAS: tuple[tuple[str, Unit], ...] = (
    (
        r"(DATETIME|DATEAMPM|(E8601|B8601|IS8601)D[TZ]|MDYAMPM|NLDATM).*",
        (pa.timestamp("us"), SAS, 86_400),
    ),
    (
        r"(DATE|MMDDYY|DDMMYY|YYMMDD|(E8601|B8601|IS8601)DA|JULIAN|MONYY|YYMON|WORDDAT|WEEKDAT"
        r"|NLDATE|MMYY|YYMM|YYQ|YEAR).*",
        (pa.date32(), SAS, 1),
    ),
    (r"(TIME|HHMM|TOD|(E8601|B8601|IS8601)TM|NLTIME).*", (pa.time64("us"), 0, 86_400)),
)
"""Formats of days and times by their patterns, the first that fits."""
UNITS = {".dta": OF_STATA, ".sas7bdat": OF_SAS, ".xpt": OF_SAS}
MOST_CODE = 10**15
"""Codes that a catalog has are below this."""
FAILED = (PyreadstatError, ReadstatError, OSError, ValueError, UnicodeError, MemoryError)


@dataclass(frozen=True, slots=True)
class StatFile:
    """A file of a statistical package: its columns, and how they are called in bytes."""

    path: str
    encoding: str
    schema: pa.Schema
    units: tuple[Unit | None, ...]
    raw_names: tuple[str, ...]

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows`."""
        places = [self.schema.names.index(name) for name in names]
        schema = pa.schema([self.schema.field(i) for i in places])
        raw, start = [self.raw_names[i] for i in places], 0
        while True:
            found = self._read(raw, start)
            count = len(found[raw[0]])
            for first in range(0, count, ROWS):
                arrays = [
                    self._values(i, found[name][first : first + ROWS])
                    for i, name in zip(places, raw, strict=True)
                ]
                yield pa.record_batch(arrays, schema)
            if count < AT_ONCE:
                return
            start += count

    def _read(self, raw: Sequence[str], start: int) -> Mapping[str, Sequence[Any]]:
        try:
            found, _ = READ[Path(self.path).suffix.lower()](
                self.path,
                usecols=[*dict.fromkeys(raw)],
                encoding=BYTES,
                disable_datetime_conversion=True,
                row_offset=start,
                row_limit=AT_ONCE,
                output_format="dict",
            )
        except FAILED:
            found = None  # what it says may be about a value
        if found is None:
            raise OSError("the rows of a statistical file cannot be read")
        return dict(found)

    def _values(self, place: int, values: Sequence[Any]) -> pa.Array:
        stored = self.schema.field(place).type
        if pa.types.is_large_string(stored):
            texts = (each.encode("latin-1", "replace") if each else None for each in values)
            decoded = [t and codecs.decode(t, self.encoding, "replace") for t in texts]
            return pa.array(decoded, stored)
        numbers = np.array(values, dtype=np.float64)  # None is NaN
        unit = self.units[place]
        if unit is not None:
            return in_unit(numbers, unit)
        missing = np.isnan(numbers)
        if pa.types.is_integer(stored):
            whole = np.where(missing, 0.0, numbers).astype(np.int64)
            return pa.array(whole, stored, mask=missing)
        return pa.array(numbers, stored, mask=missing)


def in_unit(numbers: npt.NDArray[np.float64], unit: Unit) -> pa.Array:
    """Return days, instants or times of day (rows,) from the doubles that stand for them (rows,).

    What lies beyond the years of a calendar, or the day, becomes a value that no column has.
    """
    stored, first, per_day = unit
    missing = np.isnan(numbers)
    known = np.where(np.isfinite(numbers), numbers, 0.0) / per_day
    if pa.types.is_date(stored):
        days = np.floor(known) + first
        # 4e6 days are some 10,950 years, beyond any date and within int32.
        fits = np.isfinite(numbers) & (np.abs(days) < 4e6)
        found = np.where(fits, days, (1 << 31) - 1).astype(np.int32)
        return pa.array(found, pa.int32(), mask=missing).view(stored)
    last, nothing = (1.0, MIDNIGHT) if pa.types.is_time(stored) else (4e6, INFINITE)
    fits = np.isfinite(numbers) & (known < last) & (known >= (0 if last == 1 else -last))
    parts = np.where(fits, numbers, 0.0)
    micros = np.rint(parts * (86_400_000_000 // per_day)).astype(np.int64)
    micros = np.where(fits, micros + first * 86_400_000_000, nothing)
    return pa.array(micros, pa.int64(), mask=missing).view(stored)


RECORD = 80
"""Bytes of a record of a transport file of SAS."""


def open_file(path: str, named: str, written: Delimited) -> StatFile:
    """Open a file by the end of its name.

    Args: as those of :func:`dpsql.privacy.vault.files.arrow_rows.open_rows`.

    Raises: Unreadable, OSError.
    """
    meta, raw = _describe(path, None), _describe(path, BYTES)
    if path.lower().endswith(".xpt"):
        _refuse_cut(path, sum(meta.variable_storage_width.values()))
    encoding = written.encoding if written.encoding != "utf-8" else meta.file_encoding or "utf-8"
    try:
        encoding = codecs.lookup(encoding).name
    except LookupError:
        hint = 'declare the encoding: source = { file = "old.sav", encoding = "cp1252" }'
        raise Unreadable(f"its encoding {encoding[:40]!r} is not known", hint) from None
    units = tuple(unit_of(path, meta, name) for name in meta.column_names)
    types = [
        _type(meta.readstat_variable_types[name], unit)
        for name, unit in zip(meta.column_names, units, strict=True)
    ]
    schema = pa.schema(list(zip(meta.column_names, types, strict=True)))
    return StatFile(path, encoding, schema, units, tuple(raw.column_names))


def _refuse_cut(path: str, width: int) -> None:
    """Refuse a transport file whose end is none, as far as the format tells. Raises: Unreadable.

    Its rows of some bytes fill records, the last one with blanks. Version 8 has their number.
    """
    size, said, at = os.path.getsize(path), "", 0
    problem = "it was cut off: it ends within a record", "write it again, whole"
    if size % RECORD:
        raise Unreadable(*problem)
    with Path(path).open("rb") as file:
        while (line := file.read(RECORD)) and not line.startswith(OBSERVATIONS):
            check()
        at = file.tell()
        said = line[len(OBSERVATIONS) :][28:43].decode("ascii", "replace").strip()
        rest = (size - at) % width if width else 0
        file.seek(size - rest)
        is_filled = rest < RECORD and not file.read(rest).strip(b" ")
    rows = int(said) if said.isdigit() else 0
    if not is_filled or rows * width > size - at:
        problem = "it was cut off, or holds more than one table", "write the table again, whole"
        raise Unreadable(*problem)


OBSERVATIONS = b"HEADER RECORD*******OBS"
"""The beginning of the record after which rows are in a transport file."""


def read_book(path: str) -> dict[str, BookColumn]:
    """Return what a file says of the values of its columns, by case-folded name; reads no value.

    Numbers with labels are codes, unless they are measured on a scale; labels of what the file
    declares missing are for NULL. Raises: Unreadable.
    """
    meta = _describe(path, None, user_missing=True)
    found: dict[str, BookColumn] = {}
    for name in meta.column_names:
        lost = [*meta.missing_ranges.get(name, ()), *meta.missing_user_values.get(name, ())]
        labels = _codes(meta, name, lost) if meta.variable_measure.get(name) != "scale" else []
        said = meta.variable_value_labels.get(name, {})
        if labels:
            null = bool(lost) or len(labels) < len(said)
            note = meta.column_names_to_labels.get(name) or ""
            missing = [each["lo"] for each in lost if isinstance(each, dict)]
            gone = [
                str(int(x)) if isinstance(x, float) and x.is_integer() else str(x) for x in missing
            ]
            said = BookColumn.labelled(labels, null)
            found[name.casefold()] = replace(said, missing=tuple(gone), note=note)
    return found


def _codes(meta: Any, name: str, lost: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the codes of a column that have labels and are values; none if one is a fraction."""
    is_text = meta.readstat_variable_types[name] == "string"
    ranges = [each for each in lost if isinstance(each, dict)]
    found = []
    for code, label in meta.variable_value_labels.get(name, {}).items():
        if is_text:
            is_lost = any(each["lo"] == code for each in ranges)
            written = str(code).rstrip()
        elif isinstance(code, str):  # a missing value of Stata
            continue
        elif not float(code).is_integer() or abs(code) > MOST_CODE:
            return []
        else:
            is_lost = any(each["lo"] <= code <= each["hi"] for each in ranges)
            written = str(int(code))
        if not is_lost and written:
            found.append((written, " ".join(str(label).split())))
    return found


def unit_of(path: str, meta: Any, name: str) -> Unit | None:
    """Return the unit of a column of days or times, by its format; None for other columns.

    Args:
        path: the file, whose ending tells what its formats mean.
        meta: what pyreadstat says of its columns.
        name: the column.
    """
    if meta.readstat_variable_types[name] == "string":
        return None
    form, listed = str(meta.original_variable_types[name]), UNITS.get(Path(path).suffix.lower())
    fits = (unit for pattern, unit in listed or OF_SPSS if re.fullmatch(pattern, form))
    return next(fits, None)


def _type(stored: str, unit: Unit | None) -> pa.DataType:
    if stored == "string":
        return pa.large_string()
    if unit is not None:
        return unit[0]
    return pa.int32() if stored in WHOLE else pa.float64()


def _describe(path: str, encoding: str | None, **options: bool) -> Any:
    """Return what a file says of its columns, in the encoding that it names where none is given."""
    read = READ[Path(path).suffix.lower()]
    known = options if Path(path).suffix.lower() in (".sav", ".zsav", ".dta") else {}
    try:
        _, meta = read(path, metadataonly=True, encoding=encoding, **known)
    except FAILED:
        meta = None  # what it says names bytes of the file
    if meta is None:
        problem = f"it is no {Path(path).suffix} file, damaged, encrypted, or of a later version"
        raise Unreadable(problem, "save it again, without a password; or export it as Parquet")
    if not meta.column_names:
        raise Unreadable("the file has no column", "save it again with its variables")
    return meta
