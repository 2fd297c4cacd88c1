"""Names with a schema: ``main.adult``, ``public.adult`` and ``adult.main.adult`` are ``adult``.

All tables of a catalog are in one schema, which databases call main or public; a catalog is called
after its file. A table may be declared under a name with a schema of its own, ``"sales.orders"``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import OF_CATALOG

SCHEMAS = ("main", "public")
"""The names that the schema of a catalog's tables may have."""


def find_key(parts: Sequence[str], catalog: Catalog) -> str | None:
    """The key of the table or view that a name in parts stands for, None where there is none.

    >>> from dpsql.catalog.catalog import Budget
    >>> from fractions import Fraction
    >>> made = Catalog(__import__("pathlib").Path("adult.toml"), Budget(Fraction(1), Fraction(0)))
    >>> made.views["v"] = None
    >>> [find_key(name.split("."), made) for name in ("v", "Main.V", "adult.public.v", "x.v")]
    ['v', 'v', 'v', None]
    """
    for left in _inner(parts, catalog):
        key = ".".join(left)
        if key in catalog.tables or key in catalog.views:
            return key
    return None


def _inner(parts: Sequence[str], catalog: Catalog) -> list[list[str]]:
    """A name in parts as it is, then without the catalog's own name, then without its schema."""
    left = [part.casefold() for part in parts]
    found = [left]
    if len(left) > 1 and left[0] == catalog.path.stem.casefold():
        left = left[1:]
        found.append(left)
    if len(left) == 2 and left[0] in SCHEMAS:
        found.append(left[1:])
    return found


def unqualified(tree: exp.Expr, catalog: Catalog) -> exp.Expr:
    """A query whose tables of the catalog, and columns of them, are named without a schema."""
    if not any(node.args.get("db") for node in tree.find_all(exp.Table, exp.Column)):
        return tree
    tree = tree.copy()
    for table in list(tree.find_all(exp.Table)):
        if table.args.get("db"):
            _rename(table, catalog)
    for column in tree.find_all(exp.Column):
        parts = [part.name for part in column.parts[:-1]]
        if len(parts) > 1 and find_key(parts, catalog) is not None:
            column.set("db", None)
            column.set("catalog", None)
    return tree


def _rename(table: exp.Table, catalog: Catalog) -> None:
    """Name a table by its key, and call it what it was called."""
    key = find_key([part.name for part in table.parts], catalog)
    if key is None:
        return
    last = table.this
    if not table.args.get("alias") and key != last.name.casefold():
        table.set("alias", exp.TableAlias(this=last.copy()))
    name = exp.to_identifier(key, quoted=True)
    name.meta.update(last.meta)
    table.set("this", last if key == last.name.casefold() else name)
    table.set("db", None)
    table.set("catalog", None)
    table.meta[OF_CATALOG] = True
