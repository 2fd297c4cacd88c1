"""Public rows that no declared value of the columns they are joined by meets: a public fact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpsql.catalog import Column
from dpsql.errors import ProgrammingError, Span
from dpsql.records import dataclass
from dpsql.sealed import EvaluationError
from dpsql.sql.cells.combinations import Given, first_line
from dpsql.sql.cells.evaluate import Evaluator, domain_columns


@dataclass(frozen=True, slots=True, eq=False)
class UnmatchedKeys:
    """Public rows, and conditions on declared values as SQL over ``v`` and the rows' columns.

    ``kept`` says which rows are looked at, ``alone`` what must hold of each of them besides.
    """

    evaluator: Evaluator
    public: Given
    kept: str
    alone: str
    columns: Sequence[tuple[Column, str]]
    span: Span

    def exist(self) -> bool:
        """True if there are such rows. Raises: ProgrammingError (E_DOMAIN_EVAL)."""
        return bool(self.run(f"SELECT 1 FROM kept WHERE {self.test(False)} LIMIT 1")[1])

    def groups(self, keys: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The keys that such rows alone have, in their order, with their types.

        Raises: ProgrammingError (E_DOMAIN_EVAL).
        """
        listed = ", ".join(keys)
        sql = f"SELECT {listed} FROM kept WHERE"
        return self.run(f"{sql} {self.test(False)} EXCEPT {sql} {self.test(True)} ORDER BY ALL")

    def test(self, is_met: bool) -> str:
        """SQL for rows that are looked at, and meet something or do not."""
        parts = [f"({self.alone})"] if self.alone else []
        parts += [
            f"EXISTS (SELECT 1 FROM met{number} WHERE {sql})"
            for number, (_, sql) in enumerate(self.columns)
        ]
        found = f"({' AND '.join(parts)}) IS {'' if is_met else 'NOT '}TRUE"
        return f"{found} AND ({self.kept})" if self.kept else found

    def run(self, sql: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The types and the rows of SQL over public rows and declared values.

        Raises: ProgrammingError (E_DOMAIN_EVAL).
        """
        sealed = self.evaluator.sealed
        sealed.fill("kept", self.public)
        for number, (column, _) in enumerate(self.columns):
            sealed.fill(f"met{number}", domain_columns(column))
        try:
            return sealed.query(sql)
        except EvaluationError as error:
            reason = first_line(error)
            raise ProgrammingError(
                "E_DOMAIN_EVAL",
                "the join fails on the declared domain",
                hint=f"on declared values only, DuckDB says: {reason}",
                span=self.span,
            ) from None
