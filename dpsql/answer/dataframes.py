"""Results as data frames: pandas, polars, Arrow and numpy, each imported when it is asked for.

Names of columns are told apart and types chosen as DuckDB does for its own results.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpsql.answer.numbers import Numbers
from dpsql.errors import NotSupportedError, decimal_text
from dpsql.records import dataclass
from dpsql.vectors import Vector

if TYPE_CHECKING:
    import pandas as pd
    import polars


STDDEV = "_stddev"
"""The suffix of columns of standard errors."""


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """A column: its name, its type as in ``Numbers.types``, and its values."""

    name: str
    kind: str
    values: Vector

    @property
    def dtype(self) -> str:
        """The type as it is kept: integers beyond 64 bits are doubles."""
        known = self.values.values
        if self.kind != "integer" or (isinstance(known, np.ndarray) and known.dtype == np.int64):
            return self.kind
        return "integer" if all(map(_fits, self.values.distinct())) else "number"


def _fits(value: Any) -> bool:
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**63)


def frame_columns(result: Numbers, stddev: bool) -> list[FrameColumn]:
    """The columns of a result, and after each noisy one its standard errors where asked for.

    An error that is not worked out is NaN. No two have the same name: the second ``n`` is ``n_1``.
    """
    found: list[FrameColumn] = []
    taken: set[str] = set()
    told = result.errors
    for j, (name, kind) in enumerate(zip(result.columns, result.types, strict=True)):
        own, errors = _free_name(name, taken), told[j]
        found.append(FrameColumn(own, kind, result.vectors[j]))
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
    frame = pd.DataFrame(cast(Any, series), index=pd.RangeIndex(result.count))
    frame.attrs.update(facts_of(result))
    return frame


def _pandas_column(column: FrameColumn) -> Any:
    import pandas as pd  # takes 0.4 s

    vector, kind = column.values, column.dtype
    if kind == "number":
        return vector.numbers()
    if kind in ("integer", "boolean"):
        missing = vector.nulls()
        whole = _filled(vector, np.int64 if kind == "integer" else np.bool_)
        if not missing.any():
            return whole
        masked = pd.arrays.IntegerArray if kind == "integer" else pd.arrays.BooleanArray
        return masked(whole, missing)
    if kind in ("date", "timestamp"):
        return vector.placed(np.array(vector.distinct(), dtype="datetime64[us]"))
    texts = pd.Series(["text"]).dtype  # which type text has depends on the version
    return pd.Series(vector.objects(), dtype=texts if kind == "text" else object)


def _filled(vector: Vector, kind: Any) -> Any:
    """The values of the rows as an array (rows,), another value of the column where NULL."""
    listed = vector.distinct()
    filler = next((each for each in listed if each is not None), 0)
    filled = (filler if each is None else each for each in listed)
    return vector.placed(np.fromiter(filled, kind, len(listed)))


def numpy_arrays(result: Numbers, stddev: bool = False) -> dict[str, Any]:
    """The columns as arrays of shape (rows,), masked where values are NULL."""
    return {each.name: _numpy_column(each) for each in frame_columns(result, stddev)}


def _numpy_column(column: FrameColumn) -> Any:
    kinds = {"integer": "int64", "boolean": "bool"}
    kinds |= {"date": "datetime64[us]", "timestamp": "datetime64[us]"}
    vector, mask = column.values, column.values.nulls()
    if column.dtype == "number":
        found = np.array(vector.numbers())  # nobody changes a result
    else:
        found = _filled(vector, kinds.get(column.dtype, "object"))
    return np.ma.MaskedArray(found, mask) if mask.any() else found


def polars_frame(result: Numbers, stddev: bool = False) -> polars.DataFrame:
    """The rows as a data frame of polars. Raises: NotSupportedError (E_PACKAGE)."""
    pl = needed("polars", "a frame of polars", "polars")
    kinds = {"integer": pl.Int64, "number": pl.Float64, "text": pl.String, "date": pl.Date}
    kinds |= {"timestamp": pl.Datetime("us"), "time": pl.Time, "boolean": pl.Boolean}
    columns = frame_columns(result, stddev)
    found: polars.DataFrame = pl.DataFrame(
        [_polars_column(pl, each, kinds.get(each.dtype)) for each in columns]
    )
    return found


def _polars_column(pl: Any, column: FrameColumn, kind: Any) -> Any:
    vector = column.values
    if column.dtype != "number":
        known = pl.Series(column.name, vector.distinct(), dtype=kind)
        return known if vector.places is None else known.gather(pl.Series(vector.places))
    series, missing = pl.Series(column.name, vector.numbers(), dtype=kind), vector.nulls()
    return series.set(pl.Series(missing), None) if missing.any() else series


def arrow_table(columns: Iterable[FrameColumn], facts: dict[str, Any] | None = None) -> Any:
    """Columns as an Arrow table, ``facts`` in its metadata; lists are of what they hold.

    Raises: NotSupportedError (E_PACKAGE).
    """
    pa = needed("pyarrow", "an Arrow table", "arrow")
    kinds = {"integer": pa.int64(), "number": pa.float64(), "text": pa.string()}
    kinds |= {"date": pa.date32(), "timestamp": pa.timestamp("us"), "boolean": pa.bool_()}
    kinds["time"] = pa.time64("us")
    listed = list(columns)
    arrays = [_arrow_column(pa, each, kinds.get(each.dtype)) for each in listed]
    table = pa.Table.from_arrays(arrays, names=[each.name for each in listed])
    if facts is None:
        return table
    return table.replace_schema_metadata({b"dpsql": json.dumps(facts).encode()})


def _arrow_column(pa: Any, column: FrameColumn, kind: Any) -> Any:
    vector = column.values
    if column.dtype == "number":
        return pa.array(vector.numbers(), type=kind, mask=vector.nulls())
    if isinstance(vector.values, np.ndarray) and vector.values.dtype == np.int64:
        known = pa.array(vector.values, type=kind, mask=vector.missing)
    else:
        known = pa.array(vector.distinct(), type=kind)
    return known if vector.places is None else known.take(pa.array(vector.places))


def needed(package: str, what: str, extra: str) -> Any:
    """An optional package. Raises: NotSupportedError (E_PACKAGE) where it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise NotSupportedError(
            "E_PACKAGE", f"{what} needs the package {package}", hint=f"pip install 'dpsql[{extra}]'"
        ) from None
