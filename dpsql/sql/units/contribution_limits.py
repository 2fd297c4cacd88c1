"""In how many groups, and of how many rows, a statement lets a privacy unit count."""

from __future__ import annotations

from dpsql.catalog import Table
from dpsql.records import dataclass
from dpsql.sql.text.clauses import Options, read_option_values

GROUPS = "max_groups_contributed"
ROWS = "max_rows_contributed"


@dataclass(frozen=True, slots=True)
class ContributionLimits:
    """In how many groups, and of how many rows, a unit of a table counts; None if all."""

    groups: int | None
    rows: int | None

    @property
    def says(self) -> bool:
        """True if either is bounded."""
        return self.groups is not None or self.rows is not None

    @classmethod
    def of(cls, options: Options, table: Table) -> ContributionLimits:
        """The limits below those that the table declares. Raises: ProgrammingError (E_SETTING)."""
        found = read_option_values(options, GROUPS, ROWS) if options else [None, None]
        most = table.unit.max_rows
        return cls(*(each if each is not None and each < most else None for each in found))
