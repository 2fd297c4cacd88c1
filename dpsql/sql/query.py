"""The logical query: what a SELECT asks for, in frozen values without any parser types."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpsql.errors import Span


@dataclass(frozen=True, slots=True)
class Expression:
    """A deterministic expression over one column, written over the name ``v``.

    ``column`` is the case-folded column name; ``None`` when the expression is a constant.
    """

    column: str | None
    sql: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The count of the rows that satisfy all ``conditions`` besides the statement's own WHERE."""

    conditions: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """One result column: a name, SQL over the noisy cells, and SQL for its standard error.

    ``stddev`` is ``None`` for keys and for expressions whose error has no closed form.
    ``key`` is the index of the grouping key the column simply repeats, if it does.
    ``aggregate`` is the index of the aggregate the column simply repeats, if it does.
    """

    name: str
    sql: str
    stddev: str | None = None
    noisy: bool = False
    key: int | None = None
    aggregate: int | None = None


@dataclass(frozen=True, slots=True)
class Shell:
    """What happens to the noisy cells: projection, HAVING, ORDER BY, LIMIT.

    The SQL texts are over a table ``cells`` with one row per key combination and the columns
    ``k0, k1, ...`` (keys), ``a0, a1, ...`` (aggregates), ``c0_0, c0_1, ...`` (covariances of the
    aggregates listed in ``covariances``) and ``i`` (declared order).
    """

    outputs: tuple[Output, ...]
    having: str | None = None
    order: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0
    covariances: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    def text(self) -> str:
        """The SELECT over ``cells``: outputs, then the errors of those that have one."""
        selected = [output.sql for output in self.outputs]
        selected += [output.stddev for output in self.outputs if output.stddev is not None]
        items = ", ".join(f"{sql} AS o{index}" for index, sql in enumerate(selected))
        where = f" WHERE {self.having}" if self.having is not None else ""
        limit = f" LIMIT {self.limit}" if self.limit is not None else ""
        order = ", ".join((*self.order, "i"))
        return f"SELECT {items} FROM cells{where} ORDER BY {order}{limit} OFFSET {self.offset}"

    @property
    def plain(self) -> bool:
        """Whether the shell only picks keys and aggregates, in declared order."""
        picked = all(o.key is not None or o.aggregate is not None for o in self.outputs)
        whole = self.having is None and not self.order and self.limit is None and self.offset == 0
        return picked and whole


@dataclass(frozen=True, slots=True)
class Query:
    """A counting query over one private table.

    ``where`` is a conjunction; ``keys`` are the grouping expressions in GROUP BY order; ``table``
    is the case-folded table name.
    """

    table: str
    where: tuple[Expression, ...]
    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    shell: Shell
    text: str
