"""The names and declared values of a catalog, as the prompt offers them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from dpsql.records import dataclass, field
from dpsql.ui.grid import plain
from dpsql.ui.highlight import tokens

if TYPE_CHECKING:
    from dpsql.catalog import Catalog, Column


@dataclass(slots=True)
class Vocabulary:
    """The names of a catalog: ``columns`` by case-folded table, each by case-folded name.

    Values are written out once a column is asked for.
    """

    tables: list[str] = field(default_factory=list)
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    synthetic: list[str] = field(default_factory=list)
    _written: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog) -> Vocabulary:
        """Collect the vocabulary of all tables."""
        columns = {key: dict(table.columns) for key, table in catalog.tables.items()}
        names = [table.name for table in catalog.tables.values()]
        names += [view.name for view in catalog.views.values()]
        made = [table.name for table in catalog.tables.values() if table.synthetic]
        return cls(names, columns, made)

    def mentioned(self, statement: str) -> dict[str, str]:
        """The tables that a statement mentions, by case-folded name and alias.

        >>> words = Vocabulary(columns={"people": {}})
        >>> words.mentioned("SELECT COUNT(*) FROM People AS p WHERE ")
        {'people': 'people', 'p': 'people'}
        """
        found: dict[str, str] = {}
        kinds = ("word", "name", "keyword", "function", "other")
        solid = [(k, t) for k, t in tokens(statement) if k in kinds and not t.isspace()]
        for place, (kind, token) in enumerate(solid):
            name = token.strip('"').casefold()
            if kind not in ("word", "name") or name not in self.columns:
                continue
            found[name] = name
            after = solid[place + 1 : place + 3]
            if after and after[0][1].lower() == "as":
                after = after[1:]
            if after and after[0][0] in ("word", "name"):
                found[after[0][1].strip('"').casefold()] = name
        return found

    def scope(self, statement: str) -> dict[str, tuple[str, Column]]:
        """The columns of the tables that a statement mentions, or of all where it mentions none.

        Each comes with its table; the first of two columns of one name wins.
        """
        tables = set(self.mentioned(statement).values()) & self.columns.keys() or self.columns
        found: dict[str, tuple[str, Column]] = {}
        for table in self.columns:
            if table in tables:
                for key, column in self.columns[table].items():
                    found.setdefault(key, (table, column))
        return found

    def values(self, table: str, column: str) -> list[str]:
        """The declared values of a column as SQL literals, in order; NULL is none."""
        key = (table, column)
        if key not in self._written:
            cells = self.columns[table][column].cells
            self._written[key] = [sql_literal(cell) for cell in cells if cell is not None]
        return self._written[key]


def sql_literal(value: object) -> str:
    """Write a declared value as an SQL literal.

    >>> sql_literal("O'Neil"), sql_literal(17), sql_literal(True)
    ("'O''Neil'", '17', 'true')
    """
    if isinstance(value, bool | int | float | Decimal):
        return plain(value)
    return "'" + plain(value).replace("'", "''") + "'"


def starting(options: Iterable[str], prefix: str) -> Iterator[str]:
    """The options that start with a prefix in any case, in their order."""
    lower = prefix.lower()
    return (option for option in options if option.lower().startswith(lower))
