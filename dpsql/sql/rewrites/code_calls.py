"""LABEL and CODE of a column with labels, written as comparisons with these.

Statements see labels, so that a code is a CASE over them. A function is not told which column its
argument is: the plan of the FROM around it says, whatever the column is called there.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog.domain import Labels
from dpsql.errors import Error, ProgrammingError
from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames
from dpsql.logical.expressions import ColumnId, ColumnRef, Scalar, ScalarCall
from dpsql.logical.nodes import (
    LogicalAggregate,
    LogicalProject,
    LogicalScan,
    LogicalSetOperation,
    LogicalShared,
    Plan,
    columns_of,
    inputs_of,
)
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.language import Locate, refuse

LABEL, CODE = "label", "code"
MOST = 2_000
"""Labels that the calls of one statement may be written out for."""

Coded = tuple[Labels, str]
"""The labels that a value is of, and which of both it is."""


def is_code_call(node: exp.Expr) -> bool:
    """True if a node is a call of LABEL or CODE."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in (LABEL, CODE)


def without_code_calls(tree: exp.Expr, binder: SubqueryBinder, locate: Locate) -> exp.Expr:
    """Return the same without LABEL and CODE.

    What is neither a label nor a code of the column has none: NULL, and values that are not
    declared. Raises: NotSupportedError (E_FUNCTION) where the argument is no column with labels;
    ProgrammingError (E_TOO_COMPLEX).
    """
    tree, left = tree.copy(), MOST
    known = _CodedColumns(binder)
    calls = [each for each in tree.find_all(exp.Anonymous) if is_code_call(each)]
    found = [(call, _argument_of(call, known, locate)) for call in calls]
    for call, (labels, kind) in reversed(found):
        left -= labels.size
        if left < 0:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                f"LABEL and CODE are of more than {MOST:,} labels",
                hint="join a public table of the codes and labels",
                span=locate(call),
            )
        written = _written(call, labels, kind)
        if isinstance(call.parent, exp.Select) and call.arg_key == "expressions":
            written = exp.alias_(written, name_of(call), quoted=True)
        call.replace(written)
    return tree


def _argument_of(call: exp.Anonymous, known: _CodedColumns, locate: Locate) -> Coded:
    """The labels that the argument of a call is of. Raises: NotSupportedError."""
    name = str(call.this).upper()
    if len(call.expressions) != 1:
        refuse(call, "E_FUNCTION", f"{name} of other than one column", f"{name}(sex)", locate)
    try:
        coded = known.of(call.expressions[0], call)
    except Error as error:
        span = locate(call.expressions[0])
        raise type(error)(error.code, error.message, hint=error.hint, span=span) from None
    if coded is None:
        what = f"{name} of what is no column with labels"
        hint = 'the catalog declares them for a column, as labels = { 1 = "male", 2 = "female" }'
        refuse(call, "E_FUNCTION", what, hint, locate)
    return coded


def _written(call: exp.Anonymous, labels: Labels, kind: str) -> exp.Expr:
    """The expression that a call stands for, of an argument of a kind, which is taken out of it."""
    (argument,), wanted = call.expressions, str(call.this).lower()
    if kind == wanted:
        return exp.paren(argument, copy=False)
    case = exp.Case(this=argument, ifs=[])
    for pair in zip(labels.values, labels.codes, strict=True):
        one, other = map(exp.convert, pair if wanted == CODE else pair[::-1])
        case.append("ifs", exp.If(this=one, true=other))
    return exp.paren(case, copy=False)


class _CodedColumns:
    """The labels that expressions are of, in the statement around them."""

    def __init__(self, binder: SubqueryBinder) -> None:
        self.binder = binder
        self.known: dict[int, SubqueryNames | None] = {}

    def of(self, node: exp.Expr, place: exp.Expr) -> Coded | None:
        """The labels that an expression is of, where it stands; None if it is of none."""
        node = node.unnest()
        if isinstance(node, exp.Anonymous) and is_code_call(node):
            inner = self.of(node.expressions[0], place) if node.expressions else None
            return None if inner is None else (inner[0], str(node.this).lower())
        return self._of_column(node, place) if isinstance(node, exp.Column) else None

    def _of_column(self, column: exp.Column, place: exp.Expr) -> Coded | None:
        """The labels that a column is of. Raises: ProgrammingError where it is none, or several."""
        below, around, inner = place, place.parent, None
        while around is not None:
            if isinstance(around, exp.SetOperation) and below.arg_key == "order":
                return self._of_item(column, around)
            if isinstance(around, exp.Select):
                names = self._names(around)
                first = None if below.arg_key == "order" else names
                item = self._item(column, around)
                if item is not None and (first is None or not first.has(column)):
                    return self.of(item.unalias(), item)
                if names is not None and names.has(column):
                    return self._of_number(names.plan, names.column(column))
                inner = inner or names
            below, around = around, around.parent
        if inner is not None:
            inner.scope.refuse_unknown(column)
        return None

    def _names(self, select: exp.Select) -> SubqueryNames | None:
        if id(select) not in self.known:
            self.known[id(select)] = self.binder.names(select)
        return self.known[id(select)]

    def _item(self, column: exp.Column, select: exp.Select) -> exp.Expr | None:
        """The item that an alias stands for."""
        if column.table:
            return None
        name = column.name.casefold()
        named = (e for e in select.expressions if isinstance(e, exp.Alias))
        return next((each for each in named if each.alias.casefold() == name), None)

    def _of_item(self, column: exp.Column, query: exp.Expr) -> Coded | None:
        """The labels of a column that is shown by all sides of a set operation."""
        places, found = [], []
        for select in _sides(query):
            shown = [each.alias_or_name.casefold() for each in select.expressions]
            if column.name.casefold() in shown:
                places.append(shown.index(column.name.casefold()))
            if not places or len(select.expressions) <= places[0]:
                return None
            item = select.expressions[places[0]]
            found.append(self.of(item.unalias(), item))
        return found[0] if all(each == found[0] for each in found) else None

    def _of_number(self, plan: Plan, number: ColumnId | None) -> Coded | None:
        match plan:
            case _ if number is None:
                return None
            case LogicalScan():
                table = self.binder.catalog.tables.get(plan.table)
                name = dict(plan.columns)[number].casefold()
                column = None if table is None else table.columns.get(name)
                domain = None if column is None else column.domain
                return (domain, LABEL) if isinstance(domain, Labels) else None
            case LogicalShared():
                return self._of_number(plan.input, dict(plan.columns)[number])
            case LogicalAggregate() if number in dict(plan.keys):
                return self._of_value(plan.input, dict(plan.keys)[number])
            case LogicalProject() if number in dict(plan.added):
                return self._of_value(plan.input, dict(plan.added)[number])
            case LogicalSetOperation():
                place = plan.columns.index(number)
                sides = [self._of_number(part, shown[place]) for part, shown in plan.parts]
                return sides[0] if all(each == sides[0] for each in sides) else None
        below = (each for each in inputs_of(plan) if number in columns_of(each))
        return next((self._of_number(each, number) for each in below), None)

    def _of_value(self, plan: Plan, value: Scalar) -> Coded | None:
        match value:
            case ColumnRef(column):
                return self._of_number(plan, column)
            case ScalarCall(function, (argument,)) if function in (LABEL, CODE):
                inner = self._of_value(plan, argument)
                return None if inner is None else (inner[0], function)
        return None


def _sides(query: exp.Expr) -> list[exp.Select]:
    """The SELECTs of a set operation, in order."""
    inner = query.unnest()
    if isinstance(inner, exp.SetOperation):
        return [*_sides(inner.this), *_sides(inner.expression)]
    return [inner] if isinstance(inner, exp.Select) else []
