"""NATURAL JOIN as JOIN ... USING the columns that both sides have by the same name.

What a table has is what the catalog says of it: its declared columns, and those that tell whose
each row is and what it refers to. A note says which columns these are.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.catalog.catalog import PublicRows
from dpsql.errors import printable
from dpsql.sql.relations import FromElement, Join, Relation, read_from
from dpsql.sql.rewrites.lateral_aliases import columns_of
from dpsql.sql.shell.language import Locate, refuse

_INSTEAD = "JOIN public_table ON private_column = public_column, or BETWEEN two public columns"
_WRITTEN = "natural"
"""Key under which a join notes that it was written out."""


def read_sources(
    select: exp.Select,
    relation_of: Callable[[exp.Expr], Relation],
    public: PublicRows,
    locate: Locate,
) -> tuple[list[tuple[FromElement, Relation]], list[str]]:
    """The elements of FROM with what they stand for, and notes on NATURAL JOIN for who asks.

    NATURAL JOIN is written out in place.

    Raises: NotSupportedError (E_JOIN) where the sides have no column in common.
    """
    found = [(each, relation_of(each.node)) for each in read_from(select)]
    if not any(_is_natural(each.join) for each, _ in found):
        return found, []
    before, notes = set[str](), []
    for each, relation in found:
        own = columns_of([(each, relation)], public)
        if each.join is not None and _is_natural(each.join):
            common = _write_out(each.join, sorted(before & own), locate)
            listed = ", ".join(map(printable, common))
            notes.append(f"NATURAL JOIN is on the columns that the catalog names alike: {listed}")
        before |= own
    elements = read_from(select)
    return list(zip(elements, (relation for _, relation in found), strict=True)), notes


def _is_natural(join: Join | None) -> bool:
    return join is not None and _is_written(join.node)


def _is_written(join: exp.Expr) -> bool:
    return str(join.args.get("method")).upper() == "NATURAL" or _WRITTEN in join.meta


def _write_out(join: Join, common: list[str], locate: Locate) -> list[str]:
    if _WRITTEN in join.node.meta:
        return [str(name) for name in join.node.meta[_WRITTEN]]
    if not common:
        what = "NATURAL JOIN of tables without a common column"
        refuse(join.node, "E_JOIN", what, _INSTEAD, locate)
    place = next((part.meta for part in join.node.this.walk() if "start" in part.meta), None)
    names = [exp.to_identifier(name) for name in common]
    for name in names:
        name.meta.update(place or {})
    join.node.set("method", None)
    join.node.set("using", names)
    join.node.meta[_WRITTEN] = common
    return common
