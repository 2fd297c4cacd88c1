"""A result: numbers as data frames, as text and as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.answer.numbers import CostInfo as CostInfo
from dpsql.answer.numbers import Numbers
from dpsql.answer.numbers import ReceiptInfo as ReceiptInfo
from dpsql.records import dataclass

if TYPE_CHECKING:
    import pandas as pd
    import polars


@dataclass(frozen=True, repr=False)
class Result(Numbers):
    """The answer to one statement."""

    def df(self, *, stddev: bool = False) -> pd.DataFrame:
        """The rows as a data frame of pandas, with columns ``<name>_stddev`` if asked for.

        ``attrs`` of the frame has SQL, notes and cost.
        """
        from dpsql.answer.dataframes import pandas_frame  # result knows no frames until asked

        return pandas_frame(self, stddev)

    to_df = df

    def pl(self, *, stddev: bool = False) -> polars.DataFrame:
        """The rows as a data frame of polars. Raises: NotSupportedError (E_PACKAGE)."""
        from dpsql.answer.dataframes import polars_frame  # polars is optional

        return polars_frame(self, stddev)

    def arrow(self, *, stddev: bool = False) -> Any:
        """The rows as an Arrow table; notes and cost are JSON in its metadata, under ``dpsql``.

        Raises: NotSupportedError (E_PACKAGE).
        """
        from dpsql.answer.dataframes import arrow_table, facts_of, frame_columns  # as above

        return arrow_table(frame_columns(self, stddev), facts_of(self))

    def numpy(self, *, stddev: bool = False) -> dict[str, Any]:
        """The columns as arrays of shape (rows,), masked where values are NULL."""
        from dpsql.answer.dataframes import numpy_arrays  # as above

        return numpy_arrays(self, stddev)

    def plot(self, column: str | None = None, *, ax: Any = None) -> Any:
        """Draw a noisy column, the first unless named, with 95 % intervals; returns the axes.

        A line where the key is ordered, bars where it is not, a heat map for two keys.
        Raises: ProgrammingError (E_PLOT); NotSupportedError (E_PACKAGE) without matplotlib.
        """
        from dpsql.answer.plots import draw  # matplotlib is optional

        return draw(self, column, ax)

    def __str__(self) -> str:
        from dpsql.answer.display import result_text  # as above

        return result_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from dpsql.answer.display import result_html  # as above

        return result_html(self)


def message(text: str, sql: str = "") -> Result:
    """A result without rows that says something."""
    return Result((), (), (), (), sql, kind="message", message=text)


def listing(columns: tuple[str, ...], rows: list[tuple[Any, ...]], sql: str = "") -> Result:
    """A result of public facts, such as SHOW tables."""
    types = tuple(
        "integer" if rows and all(isinstance(row[j], int) for row in rows) else "text"
        for j in range(len(columns))
    )
    return Result.of_rows(columns, types, rows, (None,) * len(columns), sql, kind="message")
