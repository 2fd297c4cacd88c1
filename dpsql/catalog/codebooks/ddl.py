"""CREATE TABLE in the SQL of any database: types, ENUM, NOT NULL, CHECK and comments.

What a condition says of a column is a set of values that holds all it permits, so that a domain
that is drafted from it leaves out no row that the database takes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from dpsql.catalog.codebook import MOST_WHOLE, BookColumn
from dpsql.catalog.codebooks.read import Fault
from dpsql.catalog.codebooks.values import closed_ends
from dpsql.records import dataclass, replace

NAME = "CREATE TABLE in SQL (.sql, .ddl)"
SYNTAX = "sql"
DIALECTS = ("postgres", "mysql", "tsql", "oracle", "snowflake", "bigquery", "sqlite", "duckdb")
"""Dialects in which a file is tried; the first that takes all of it is that of the file."""
KIND = exp.DataType.Type
TYPES: dict[Any, str] = {
    **dict.fromkeys((*exp.DataType.INTEGER_TYPES, KIND.BIT), "integer"),
    **dict.fromkeys(exp.DataType.TEXT_TYPES, "text"),
    **dict.fromkeys(exp.DataType.NUMERIC_TYPES - exp.DataType.INTEGER_TYPES, "number"),
    **dict.fromkeys(exp.DataType.TEMPORAL_TYPES, "timestamp"),
    **dict.fromkeys((KIND.DATE, KIND.DATE32), "date"),
    **dict.fromkeys((KIND.TIME, KIND.TIMETZ), "time"),
    KIND.BOOLEAN: "boolean",
    KIND.ENUM: "text",
}
"""Types of columns by those of SQL; columns of others are left to the draft."""
COMPARED = {exp.GTE: "least", exp.GT: "above", exp.LTE: "most", exp.LT: "below"}
TURNED = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.LT: exp.GT}


@dataclass(frozen=True, slots=True)
class PermittedValues:
    """A set of values of a column that holds all that a condition permits.

    ``values`` is a list, None where any is; of the four ends some are None.
    """

    values: tuple[Any, ...] | None = None
    least: Any = None
    above: Any = None
    most: Any = None
    below: Any = None

    def both(self, other: PermittedValues) -> PermittedValues:
        """Return the values that are in both sets, by one list, and the ends that are known."""
        one, two = self.values, other.values
        kept = one if two is None else two if one is None else tuple(v for v in one if v in two)
        ends = {
            name: _narrower(getattr(self, name), getattr(other, name), name in ("least", "above"))
            for name in ("least", "above", "most", "below")
        }
        return PermittedValues(kept, **ends)

    def either(self, other: PermittedValues) -> PermittedValues:
        """Return the values that are in one of two lists; any where one is a range."""
        if self.values is None or other.values is None:
            return PermittedValues()
        return PermittedValues(tuple(dict.fromkeys((*self.values, *other.values))))


def _narrower(one: Any, two: Any, is_least: bool) -> Any:
    if one is None or two is None or type(one) is not type(two):
        return two if one is None else one
    return max(one, two) if is_least else min(one, two)


Facts = dict[str, PermittedValues]
"""Values by column, as a condition permits them."""


def read(parsed: Any) -> Iterator[tuple[str, str, BookColumn]]:
    """Yield the columns of all tables that are created. Raises: Fault for what is no SQL."""
    trees = _parsed(parsed)
    enums = {
        tree.this.name.casefold(): tuple(each.name for each in tree.expression.expressions)
        for tree in trees
        if isinstance(tree, exp.Create) and isinstance(tree.expression, exp.DataType)
    }
    checks, notes = _beside(trees)
    for tree in trees:
        if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema):
            name = tree.this.this.name
            facts = _facts_of(each for each in tree.this.expressions if not _is_column(each))
            facts = _joined(facts, checks.get(name.casefold(), {}))
            for each in filter(_is_column, tree.this.expressions):
                found = _column(each, facts, enums, _keys(tree.this))
                if found is not None:
                    noted = notes.get((name.casefold(), each.name.casefold()), found.note)
                    yield name, each.name, replace(found, note=noted)


def _parsed(text: str) -> list[exp.Expr]:
    """The statements of a file; those that sqlglot does not know are none. Raises: Fault."""
    log, first = logging.getLogger("sqlglot"), None
    was, log.disabled = log.disabled, True  # it warns of statements that are no CREATE TABLE
    try:
        for dialect in DIALECTS:
            try:
                return [each for each in sqlglot.parse(text, dialect=dialect) if each is not None]
            except ParseError as error:
                first = first or error.errors[0]
            except (TokenError, RecursionError):
                continue
    finally:
        log.disabled = was
    if first is None:
        raise Fault("is no SQL: a quote or comment is not closed")
    raise Fault("is no SQL", int(first["line"]), int(first["col"]))


def _beside(trees: Sequence[exp.Expr]) -> tuple[dict[str, Facts], dict[tuple[str, str], str]]:
    """Checks that ALTER TABLE adds, by table, and comments on columns, by both names."""
    checks: dict[str, Facts] = {}
    notes: dict[tuple[str, str], str] = {}
    for tree in trees:
        if isinstance(tree, exp.Alter):
            name = tree.this.name.casefold()
            checks[name] = _joined(checks.get(name, {}), _facts_of(tree.args.get("actions") or ()))
        if isinstance(tree, exp.Comment) and isinstance(tree.this, exp.Column):
            names = tree.this.table.casefold(), tree.this.name.casefold()
            notes[names] = tree.expression.name
    return checks, notes


def _is_column(node: exp.Expr) -> bool:
    return isinstance(node, exp.ColumnDef)


def _keys(schema: exp.Schema) -> set[str]:
    """The names of columns of a primary key of the table."""
    keys = schema.find_all(exp.PrimaryKey)
    return {each.name.casefold() for key in keys for each in key.expressions}


def _facts_of(nodes: Any) -> Facts:
    checks = (check for node in nodes for check in node.find_all(exp.CheckColumnConstraint))
    return reduce(_joined, map(permitted, (each.this for each in checks)), {})


def _joined(one: Facts, two: Facts) -> Facts:
    return {**one, **{key: one.get(key, PermittedValues()).both(each) for key, each in two.items()}}


def _column(
    column: exp.ColumnDef, facts: Facts, enums: dict[str, tuple[str, ...]], keys: set[str]
) -> BookColumn | None:
    stored = column.args.get("kind")
    said = described(stored, enums)
    if said is None:
        return None
    kinds = [each.kind for each in column.constraints]
    is_known = any(
        isinstance(each, exp.PrimaryKeyColumnConstraint)
        or (isinstance(each, exp.NotNullColumnConstraint) and not each.args.get("allow_null"))
        for each in kinds
    )
    facts = _joined(facts, _facts_of(column.constraints))
    notes = [each.this.name for each in kinds if isinstance(each, exp.CommentColumnConstraint)]
    name = column.name.casefold()
    found = narrowed(said, facts.get(name, PermittedValues()), _places(stored))
    null = not is_known and name not in keys
    return replace(found, null=null, note=notes[0] if notes else "")


def described(stored: Any, enums: dict[str, tuple[str, ...]] | None = None) -> BookColumn | None:
    """Return a column of a type of SQL, with the values of an ENUM; None for other types."""
    if not isinstance(stored, exp.DataType):
        return None
    if stored.this == KIND.USERDEFINED:
        listed = (enums or {}).get(str(stored.args.get("kind") or "").split(".")[-1].casefold())
        return None if listed is None else BookColumn("text", listed)
    if stored.this == KIND.ENUM:
        return BookColumn("text", tuple(each.name for each in stored.expressions))
    kind = TYPES.get(stored.this)
    kind = "integer" if kind == "number" and _places(stored) == 0 else kind
    return None if kind is None else BookColumn(kind)


def read_sql_type(text: str) -> BookColumn | None:
    """Return a column of a type of SQL as it is written, in any dialect; None for other types.

    >>> read_sql_type("varchar(3)"), read_sql_type("INT64"), read_sql_type("geometry")
    (BookColumn(type='text'...), BookColumn(type='integer'...), None)
    """
    for dialect in (*DIALECTS, "bigquery"):
        try:
            found = described(exp.DataType.build(text, dialect=dialect))
        except (ParseError, TokenError, ValueError):
            continue
        if found is not None:
            return found
    return None


def checked(text: str) -> Facts:
    """Return what a condition that is written in SQL permits; nothing where it is none.

    >>> checked("age >= 0 and age < 5")["age"]
    PermittedValues(values=None, least=0, above=None, most=None, below=5)
    """
    try:
        return permitted(sqlglot.parse_one(text, dialect="postgres"))
    except (ParseError, TokenError):
        return {}


def _places(stored: Any) -> int | None:
    """The decimal places of a decimal type; None where it states none."""
    is_decimal = isinstance(stored, exp.DataType) and stored.this == KIND.DECIMAL
    sizes = [each.name for each in stored.expressions] if is_decimal else []
    if not sizes or not all(map(str.isdigit, sizes)):
        return None
    return int(sizes[1]) if len(sizes) > 1 else 0


def narrowed(said: BookColumn, facts: PermittedValues, places: int | None = None) -> BookColumn:
    """Return a column with the values and ends that conditions permit.

    Args:
        said: the column as the table declares it; what its conditions leave open stays.
        facts: values and ends that CHECK conditions permit, open ends apart from closed ones.
        places: decimal places of the stored numbers, None where the type has none; a range on that
            grid makes a decimal column of at most six places.
    """
    least, most = closed_ends(said.type, facts.least, facts.most, facts.above, facts.below)
    values = said.values if facts.values is None else facts.values
    found = replace(said, values=values, least=least, most=most)
    if said.type != "number" or not places or places > 6:
        return found
    ends = [least, most]
    on_grid = all(type(each) in (int, float) and round(each, places) == each for each in ends)
    if on_grid and 0 < (most - least) * 10**places <= MOST_WHOLE:
        return replace(found, type="decimal", step=round(10.0**-places, places))
    return found


def permitted(condition: exp.Expr | None) -> Facts:
    """Return sets of values, by column, that hold all that a condition permits."""
    node = _bare(condition)
    match node:
        case exp.And():
            return _joined(permitted(node.this), permitted(node.expression))
        case exp.Or():
            one, two = permitted(node.this), permitted(node.expression)
            if _is_null_test(node.this) or _is_null_test(node.expression):
                return two if _is_null_test(node.this) else one
            return {key: one[key].either(two[key]) for key in one.keys() & two.keys()}
        case exp.Between():
            ends = _constant(node.args["low"]), _constant(node.args["high"])
            return _of(node.this, least=ends[0], most=ends[1])
        case exp.In():
            return _of(node.this, values=_constants(node.expressions))
        case exp.EQ(expression=exp.Any() as some):
            inside = _bare(some.this)
            is_list = isinstance(inside, exp.Array | exp.Tuple)
            return _of(node.this, values=_constants(inside.expressions) if is_list else None)
        case exp.EQ():
            sides = node.this, node.expression
            if not isinstance(_bare(sides[0]), exp.Column):
                sides = node.expression, node.this
            return _of(sides[0], values=_constants([sides[1]]))
    if type(node) in COMPARED:
        left, right, kind = node.this, node.expression, type(node)
        if not isinstance(_bare(left), exp.Column):
            left, right, kind = right, left, TURNED[kind]
        return _of(left, **{COMPARED[kind]: _constant(right)})
    return {}


def _of(side: exp.Expr, **facts: Any) -> Facts:
    column = _bare(side)
    is_known = isinstance(column, exp.Column) and any(v is not None for v in facts.values())
    return {column.name.casefold(): PermittedValues(**facts)} if is_known else {}


def _bare(node: Any) -> Any:
    """A value without the casts and brackets around it."""
    while isinstance(node, exp.Paren | exp.Cast):
        node = node.this
    return node


def _is_null_test(node: Any) -> bool:
    test = _bare(node)
    return isinstance(test, exp.Is) and isinstance(_bare(test.expression), exp.Null)


def _constants(nodes: Sequence[exp.Expr]) -> tuple[Any, ...] | None:
    """The values of constants; None where one is none, or there are none."""
    found = [_constant(each) for each in nodes if not isinstance(_bare(each), exp.Null)]
    return None if not found or None in found else tuple(found)


def _constant(node: Any) -> Any:
    known = _bare(node)
    if isinstance(known, exp.Neg):
        value = _constant(known.this)
        return -value if isinstance(value, int | float) else None
    if not isinstance(known, exp.Literal):
        return None
    if known.is_string:
        return known.name
    try:
        return int(known.name) if known.name.isdigit() else float(known.name)
    except ValueError:
        return None
