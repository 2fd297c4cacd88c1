"""Results as data frames: pandas, polars, Arrow and numpy, each imported when it is asked for.

Names of columns are told apart and types chosen as DuckDB does for its own results.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpsql.answer.numbers import Numbers
from dpsql.errors import NotSupportedError, decimal_text
from dpsql.records import dataclass

if TYPE_CHECKING:
    import pandas as pd
    import polars


STDDEV = "_stddev"
"""The suffix of columns of standard errors."""


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """A column: its name, the type of its values as in ``Numbers.value_types``, and these."""

    name: str
    kind: str
    values: Sequence[Any]

    @property
    def dtype(self) -> str:
        """The type as it is kept: integers beyond 64 bits are doubles."""
        fits = self.kind != "integer" or all(map(_fits, self.values))
        return self.kind if fits else "number"


def _fits(value: Any) -> bool:
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**63)


def frame_columns(result: Numbers, stddev: bool) -> list[FrameColumn]:
    """The columns of a result, and after each noisy one its standard errors where asked for.

    An error that is not worked out is NaN. No two have the same name: the second ``n`` is ``n_1``.
    """
    found: list[FrameColumn] = []
    taken: set[str] = set()
    told = result.errors
    for j, (name, kind) in enumerate(zip(result.columns, result.value_types, strict=True)):
        own, errors = _free_name(name, taken), told[j]
        found.append(FrameColumn(own, kind, [row[j] for row in result.rows]))
        if stddev and errors is not None:
            found.append(FrameColumn(_free_name(own + STDDEV, taken), "number", errors))
    return found


def _free_name(name: str, taken: set[str]) -> str:
    """A name that is not taken yet, as it is or with a number; it is taken then.

    >>> taken = set(); [_free_name(each, taken) for each in ("n", "N", "n")]
    ['n', 'N_1', 'n_2']
    """
    found, number = name, 0
    while found.casefold() in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found.casefold())
    return found


def facts_of(result: Numbers) -> dict[str, Any]:
    """Return the facts that belong to numbers: SQL, notes, and the cost with its ledger entry."""
    facts: dict[str, Any] = {"sql": result.sql, "notes": list(result.notes)}
    if result.cost is not None:
        cost = result.cost
        facts |= {"cost": str(cost), "epsilon": decimal_text(cost.epsilon)}
        facts |= {"delta": float(cost.delta), "noise": cost.noise, "free": cost.free}
    if result.receipt is not None:
        facts |= {"ledger_entry": result.receipt.seq, "ledger_head": result.receipt.head}
    return facts


def pandas_frame(result: Numbers, stddev: bool = False) -> pd.DataFrame:
    """The rows as a data frame of pandas; ``attrs`` has the facts of ``facts_of``."""
    import pandas as pd  # takes 0.4 s

    columns = frame_columns(result, stddev)
    series = {each.name: _pandas_column(each) for each in columns}
    frame = pd.DataFrame(cast(Any, series), index=pd.RangeIndex(len(result.rows)))
    frame.attrs.update(facts_of(result))
    return frame


def _pandas_column(column: FrameColumn) -> Any:
    import pandas as pd  # takes 0.4 s

    values, kind = list(column.values), column.dtype
    missing = any(each is None for each in values)
    if kind == "integer":
        return pd.array(values, dtype="Int64" if missing else "int64")
    if kind == "boolean":
        return pd.array(values, dtype="boolean" if missing else "bool")
    if kind == "number":
        return np.array([np.nan if each is None else float(each) for each in values], np.float64)
    if kind in ("date", "timestamp"):
        return np.array(values, dtype="datetime64[us]")
    texts = pd.Series(["text"]).dtype  # which type text has depends on the version
    return pd.Series(values, dtype=texts if kind == "text" else object)


def numpy_arrays(result: Numbers, stddev: bool = False) -> dict[str, Any]:
    """The columns as arrays of shape (rows,), masked where values are NULL."""
    return {each.name: _numpy_column(each) for each in frame_columns(result, stddev)}


def _numpy_column(column: FrameColumn) -> Any:
    kinds = {"integer": "int64", "number": "float64", "boolean": "bool"}
    kinds |= {"date": "datetime64[us]", "timestamp": "datetime64[us]"}
    mask = [each is None for each in column.values]
    kind = kinds.get(column.dtype, "object")
    first = next((each for each in column.values if each is not None), 0)
    filler = first if kind != "float64" else np.nan
    filled = [filler if each is None else each for each in column.values]
    found = np.empty(len(filled), dtype=kind)
    for place, value in enumerate(filled):  # one by one: lists of one length are no matrix
        found[place] = value
    return np.ma.MaskedArray(found, mask) if any(mask) else found


def polars_frame(result: Numbers, stddev: bool = False) -> polars.DataFrame:
    """The rows as a data frame of polars. Raises: NotSupportedError (E_PACKAGE)."""
    pl = needed("polars", "a frame of polars", "polars")
    kinds = {"integer": pl.Int64, "number": pl.Float64, "text": pl.String, "date": pl.Date}
    kinds |= {"timestamp": pl.Datetime("us"), "time": pl.Time, "boolean": pl.Boolean}
    columns = frame_columns(result, stddev)
    found: polars.DataFrame = pl.DataFrame(
        [pl.Series(c.name, _numbers(c), dtype=kinds.get(c.dtype)) for c in columns]
    )
    return found


def arrow_table(columns: Iterable[FrameColumn], facts: dict[str, Any] | None = None) -> Any:
    """Columns as an Arrow table, ``facts`` in its metadata; lists are of what they hold.

    Raises: NotSupportedError (E_PACKAGE).
    """
    pa = needed("pyarrow", "an Arrow table", "arrow")
    kinds = {"integer": pa.int64(), "number": pa.float64(), "text": pa.string()}
    kinds |= {"date": pa.date32(), "timestamp": pa.timestamp("us"), "boolean": pa.bool_()}
    kinds["time"] = pa.time64("us")
    listed = list(columns)
    arrays = [pa.array(_numbers(each), type=kinds.get(each.dtype)) for each in listed]
    table = pa.Table.from_arrays(arrays, names=[each.name for each in listed])
    if facts is None:
        return table
    return table.replace_schema_metadata({b"dpsql": json.dumps(facts).encode()})


def _numbers(column: FrameColumn) -> list[Any]:
    """The values of a column; those of numbers as doubles, whatever they were."""
    if column.dtype != "number":
        return list(column.values)
    return [None if each is None else float(str(each)) for each in column.values]


def needed(package: str, what: str, extra: str) -> Any:
    """An optional package. Raises: NotSupportedError (E_PACKAGE) where it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise NotSupportedError(
            "E_PACKAGE", f"{what} needs the package {package}", hint=f"pip install 'dpsql[{extra}]'"
        ) from None
