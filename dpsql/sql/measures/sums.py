"""The argument of SUM, AVG and VAR -> a sum of products of numbers over single columns.

Columns with a domain may appear in any deterministic expression, since it is evaluated on every
declared value. Bounded measures may appear as polynomials of degree two at most. A row where any
operand is NULL adds nothing, as in SQL.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from sqlglot import exp

from dpsql.catalog.domain import Bins
from dpsql.errors import NotSupportedError, Span
from dpsql.logical.functions import has
from dpsql.records import dataclass, replace
from dpsql.sql.cells.cell_edges import check_edges
from dpsql.sql.cells.decimal_places import is_fine
from dpsql.sql.cells.evaluate import Operand
from dpsql.sql.measures.centred_moments import shifted
from dpsql.sql.measures.clipped_measures import (
    ClippedMeasure,
    constant_of,
    least_products,
    lifted,
    read_clipped,
)
from dpsql.sql.measures.sum_clips import clip_within, clipped_column, within
from dpsql.sql.query import Condition, Expression, Summand
from dpsql.sql.rewrites.tree_parts import NodeLimit, size_of
from dpsql.sql.scope import Scope, condition, negation
from dpsql.sql.shell.language import check_scalar
from dpsql.sql.text.growth import check_growth
from dpsql.workload.polynomial import MAX_DEGREE, Polynomial, exact_double

MAX_SUMMANDS = 64
"""Most products of a sum: every one is measured as a term of its own."""

NODES_FOR_ONE = 6
"""Tokens that a node counts as in the limit of what branches repeat: LEAST of 64 columns fits."""

NOTHING = Fraction(0)
MINUS_ONE = Expression(None, "-1", Span("", 0, 0))


@dataclass(frozen=True, slots=True)
class SumAndCount:
    """The summands that every row adds to a sum, and to the count of rows that add to it."""

    summands: tuple[Summand, ...]
    counted: tuple[Summand, ...]


def amount(scope: Scope, node: exp.Expr, clip: tuple[float, float] | None = None) -> SumAndCount:
    """Bind the argument of a sum.

    Raises: NotSupportedError (E_EXPR_IN_AGG); ProgrammingError (E_NO_BOUNDS, E_BIN_EDGE).
    """
    if clip is not None:
        clip = clip_within(scope, node, clip)
    room = NodeLimit(NODES_FOR_ONE * size_of(node))
    amounts = _Amounts(scope, clip, node, room)
    amounts.count(least_products(node, amounts.is_apart))
    return amounts.amount(node)


def squared(scope: Scope, node: exp.Expr, clip: tuple[float, float] | None) -> SumAndCount:
    """Bind the square of the argument of a sum, which is clipped before it is squared.

    Raises: as ``amount``.
    """
    inner: exp.Expr = exp.paren(node.copy(), copy=False)
    if clip is not None and clipped_column(scope, node).domain is not None:
        clip = clip_within(scope, node, clip)
        inner, clip = inner if clip is None else within(node, clip), None
    return amount(scope, exp.Mul(this=inner, expression=inner.copy()), clip)


def among(summands: Sequence[Summand], counted: Sequence[Summand]) -> tuple[Summand, ...]:
    """The summands of a sum over the rows that add to another one."""
    return tuple(_with(summand, present) for summand in summands for present in counted)


@dataclass(frozen=True, slots=True)
class _Amounts:
    """Multiplies out the argument of one sum: ``whole``.

    No product is ever taken back, so that a part with too many is refused before it is made.
    """

    scope: Scope
    clip: tuple[float, float] | None
    whole: exp.Expr
    room: NodeLimit

    def count(self, products: int) -> None:
        """Refuse so many products, before they are made.

        Raises: NotSupportedError (E_EXPR_IN_AGG).
        """
        if products > MAX_SUMMANDS:
            raise NotSupportedError(
                "E_EXPR_IN_AGG",
                f"the sum multiplies out to over {MAX_SUMMANDS} products",
                hint="its parts may be sums of their own, which are added: SUM(a) + SUM(b)",
                span=self.scope.locate(self.whole),
            )

    def amount(self, node: exp.Expr) -> SumAndCount:
        inner = lifted(node.unnest(), self.is_stepped, self.is_apart, self.room)
        if isinstance(inner, exp.Case) and self.is_apart(inner):
            return self.branches(inner)
        inner = inner.transform(self.known).transform(self.multiplied)
        summands = self.expand(inner)
        present = self.presence(inner)
        return SumAndCount(
            tuple(_with(summand, present) for summand in summands), (_with(Summand(), present),)
        )

    def is_stepped(self, node: exp.Expr) -> bool:
        """True if a node clips a column in bins, which is done bin by bin."""
        columns = self.columns(node) if has(node, "clips") else []
        in_bins = [isinstance(self.scope.table.columns[n].domain, Bins) for n in columns]
        return in_bins == [True] and self.is_measure(columns[0], node)

    def clipped(self, node: exp.Expr) -> ClippedMeasure | None:
        """A node that clips a measure with bounds; None for all else."""
        if self.clip is not None or not has(node, "clips"):
            return None
        found = read_clipped(node, self.bounds)
        if found is None:
            return None
        (name,) = self.columns(found.column)
        return found if self.scope.table.columns[name].null else replace(found, null=None)

    def bounds(self, node: exp.Column) -> tuple[float, float] | None:
        """The bounds of a measure of this table."""
        if self.scope.is_listed(node) or self.scope.is_public(node):
            return None
        column = self.scope.find_column(node, measure=True, summed=True)
        bounds = self.clip_of(column.name.casefold()) or column.number_bounds
        return bounds if column.domain is None else None

    def is_apart(self, node: exp.Expr) -> bool:
        """True if a CASE is of more than one column, or of a measure that it does not clip."""
        columns = self.columns(node)
        several = len(columns) > 1 or any(self.is_measure(name, node) for name in columns)
        return several and self.clipped(node) is None

    def known(self, node: exp.Expr) -> exp.Expr:
        """COALESCE without constants that are NULL; all else as it is."""
        if not isinstance(node, exp.Coalesce) or not any(map(self.is_null, node.expressions)):
            return node
        rest = [each for each in node.expressions if not self.is_null(each)]
        return exp.Coalesce(this=node.this, expressions=rest) if rest else node.this

    def multiplied(self, node: exp.Expr) -> exp.Expr:
        """A division by numbers over one column with a domain as a product with their inverse."""
        if not isinstance(node, exp.Div):
            return node
        below = self.columns(node.expression)
        if len(below) != 1 or self.is_measure(below[0], node.expression):
            return node
        if set(self.columns(node.this)) <= set(below):
            return node
        inverse = exp.Div(this=exp.Literal.number("1.0"), expression=node.expression.copy())
        return exp.Mul(this=node.this.copy(), expression=exp.paren(inverse, copy=False))

    def columns(self, node: exp.Expr) -> list[str]:
        found = {}
        for reference in node.find_all(exp.Column):
            if not self.scope.is_listed(reference):
                column = self.scope.find_column(reference, measure=True, summed=True)
                found[column.name.casefold()] = True
        return list(found)

    def is_measure(self, name: str, node: exp.Expr) -> bool:
        """True if the values of a node over a column are not those of its cells.

        So it is for a measure and for bins, unless the node is about public rows alone.
        """
        domain = self.scope.table.columns[name].domain
        apart = domain is None or isinstance(domain, Bins)
        return apart and any(not self.scope.is_public(c) for c in node.find_all(exp.Column))

    def branches(self, node: exp.Case) -> SumAndCount:
        """CASE WHEN ... THEN ... END: the first branch whose condition holds."""
        summands: list[Summand] = []
        counted: list[Summand] = []
        before: tuple[Condition, ...] = ()
        subject = node.this
        for branch in node.args["ifs"]:
            test = branch.this
            if subject is not None:
                test = exp.EQ(this=subject.copy(), expression=test.copy())
            here = (*before, condition(self.scope, test))
            self.branch(branch.args["true"], here, summands, counted)
            before = (*before, negation(self.scope, test))
        if node.args.get("default") is not None:
            self.branch(node.args["default"], before, summands, counted)
        if not summands:  # all of them NULL
            nothing = Summand(conditions=(condition(self.scope, exp.false()),))
            return SumAndCount((nothing,), (nothing,))
        return SumAndCount(tuple(summands), tuple(counted))

    def branch(
        self,
        node: exp.Expr,
        conditions: tuple[Condition, ...],
        summands: list[Summand],
        counted: list[Summand],
    ) -> None:
        if isinstance(node.unnest(), exp.Null):
            return
        found = self.amount(node)
        self.count(len(summands) + len(found.summands))
        self.count(len(counted) + len(found.counted))
        for source, target in ((found.summands, summands), (found.counted, counted)):
            target += [replace(s, conditions=(*conditions, *s.conditions)) for s in source]

    def is_of_days(self, node: exp.Expr) -> bool:
        """True if a node is the days between two dates."""
        if isinstance(node, exp.DateDiff):
            return node.text("unit").upper() == "DAY"
        sides = [each.unnest() for each in (node.this, node.expression)]
        named = [self.columns(side) for side in sides if isinstance(side, exp.Column)]
        columns = self.scope.table.columns
        return len(named) == 2 and all(columns[name].type == "date" for (name,) in named)

    def expand(self, node: exp.Expr) -> list[Summand]:
        """Multiply out a node: a list of products whose sum it is."""
        node = node.unnest()
        columns = self.columns(node)
        if not columns:
            check_scalar(node, self.scope.locate)
            return [Summand((self.scope.expression(None, node),))]
        if len(columns) == 1 and not self.is_measure(columns[0], node):
            return [Summand((self.number(columns[0], node),))]
        match node:
            case exp.DateDiff() | exp.Sub() if self.is_of_days(node):
                ends = [_day_number(each) for each in (node.this, node.expression)]
                return self.added(self.expand(ends[0]), _negated(self.expand(ends[1])))
            case exp.Column():
                return [Summand((), (self.measure(columns[0]),))]
            case _ if (found := self.clipped(node)) is not None:
                column = self.scope.table.columns[columns[0]]
                return [Summand((), (found.polynomial(column),))]
            case exp.Add() | exp.Sub() if self.clip is None and (known := shifted(node)):
                return [Summand((), (self.measure(columns[0], known[1]),))]
            case exp.Add():
                return self.added(self.expand(node.this), self.expand(node.expression))
            case exp.Sub():
                return self.added(self.expand(node.this), _negated(self.expand(node.expression)))
            case exp.Neg():
                return _negated(self.expand(node.this))
            case exp.Mul():
                return self.multiply(self.expand(node.this), self.expand(node.expression), node)
            case exp.Div() if not self.columns(node.expression):
                whole = exp.Div(this=exp.Literal.number("1.0"), expression=node.expression.copy())
                constant = Summand((self.scope.expression(None, whole),))
                return self.multiply(self.expand(node.this), [constant], node)
            case exp.Pow() if node.expression.name == "2":
                once = self.expand(node.this)
                return self.multiply(once, once, node)
            case exp.Cast() if node.to.this in (exp.DType.DOUBLE, exp.DType.FLOAT):
                return self.expand(node.this)
            case exp.Cast() | exp.Round() if is_fine(
                node, [self.scope.table.columns[name] for name in columns]
            ):
                return self.expand(node.this)
            case exp.Coalesce() if _is_filled(node):
                present = self.presence(node.this)
                return [_with(each, present) for each in self.expand(node.this)]
            case exp.Coalesce() if len(node.expressions) == 1 and (known := shifted(node.this)):
                return self.coalesce(node, columns, known[1])
        raise NotSupportedError(
            "E_EXPR_IN_AGG",
            "this expression cannot be summed exactly",
            hint="sums, differences and products of columns work, measures up to their square; "
            "a column with a domain works in any expression of its own",
            span=self.scope.locate(node),
        )

    def coalesce(
        self, node: exp.Coalesce, columns: Sequence[str], shift: Fraction
    ) -> list[Summand]:
        """COALESCE(measure + shift, constant)."""
        default = node.expressions[0]
        if len(columns) != 1 or self.columns(default):
            raise NotSupportedError(
                "E_EXPR_IN_AGG",
                "COALESCE in a sum takes a measure and a constant",
                hint="COALESCE(amount, 0)",
                span=self.scope.locate(node),
            )
        name = columns[0]
        missing = Polynomial(name, (0.0, 0.0, 0.0), 1.0, self.clip_of(name))
        filled = Summand((self.scope.expression(None, default),), (missing,))
        return [Summand((), (self.measure(name, shift),)), filled]

    def number(self, name: str, node: exp.Expr) -> Expression:
        """A number over one column with a domain."""
        check_scalar(node, self.scope.locate)
        column = self.scope.table.columns[name]
        check_growth([column], node, self.scope.locate)
        bare = isinstance(node, exp.Column) and not self.scope.is_public(node)
        if not bare:
            for tree in self.scope.written_out(node):
                check_edges(column, tree, self.scope.locate, self.scope.evaluator.is_same)
        if column.type not in ("integer", "number", "decimal", "boolean") and bare:
            raise NotSupportedError(
                "E_EXPR_IN_AGG",
                f"{column.name} is {column.type}: it cannot be summed",
                hint="sum a number",
                span=self.scope.locate(node),
            )
        if self.clip is not None:
            return self.scope.expression(column, within(node, self.clip))
        cut = self.scope.cut_of(column)
        return self.scope.expression(column, node if cut is None else self.cut(node, cut))

    def cut(self, node: exp.Expr, bounds: tuple[float, float]) -> exp.Expr:
        """An expression over a column with a domain whose values are clipped."""
        if any(self.scope.find_public(each) is not None for each in node.find_all(exp.Column)):
            hint = "LEAST(x, 100) in the sum itself"
            self.scope.refuse(node, "E_AGGREGATE", "clip of values of a public table", hint)

        def clipped(part: exp.Expr) -> exp.Expr:
            return within(part, bounds) if isinstance(part, exp.Column) else part

        return node.transform(clipped)

    def measure(self, name: str, shift: Fraction = NOTHING) -> Polynomial:
        """A measure itself, and so much more."""
        return Polynomial(name, (exact_double(shift), 1.0, 0.0), 0.0, self.clip_of(name))

    def clip_of(self, name: str) -> tuple[float, float] | None:
        """The bounds that values of a measure are clipped to, beside its declared ones."""
        return self.clip or self.scope.cut_of(self.scope.table.columns[name])

    def added(self, left: list[Summand], right: list[Summand]) -> list[Summand]:
        self.count(len(left) + len(right))
        return left + right

    def multiply(self, left: list[Summand], right: list[Summand], node: exp.Expr) -> list[Summand]:
        self.count(len(left) * len(right))
        out = []
        for one, two in itertools.product(left, right):
            polynomials = {p.column: p for p in one.polynomials}
            for p in two.polynomials:
                known = polynomials.get(p.column)
                polynomials[p.column] = p if known is None else self.times(known, p, node)
            factors = (*one.factors, *two.factors)
            out.append(Summand(factors, tuple(polynomials.values())))
        return out

    def times(self, left: Polynomial, right: Polynomial, node: exp.Expr) -> Polynomial:
        if left.clip != right.clip:
            what = f"a product of {left.column} and of {left.column} within other bounds"
            self.scope.refuse(node, "E_EXPR_IN_AGG", what, "the square of one of them works")
        product = left.times(right)
        if product is None:
            raise NotSupportedError(
                "E_EXPR_IN_AGG",
                f"{left.column} appears to a power above {MAX_DEGREE}",
                hint="declare a domain for it to sum any function of it",
                span=self.scope.locate(node),
            )
        return product

    def presence(self, node: exp.Expr) -> Summand:
        """The condition that no operand is NULL, measures as polynomials."""
        conditions: list[Condition] = []
        present: list[Polynomial] = []
        for part in self.leaves(node):
            name = next(iter(self.columns(part)), None)
            if name is None:
                if self.scope.is_listed(part) or self.is_null(part):
                    test = exp.Not(this=exp.Is(this=exp.paren(part.copy()), expression=exp.null()))
                    conditions.append(self.scope.expression(None, test))
            elif self.is_measure(name, part):
                polynomial = Polynomial(name, (1.0, 0.0, 0.0), 0.0, self.clip_of(name))
                found = self.clipped(part)
                if found is not None:
                    polynomial = found.present(self.scope.table.columns[name])
                known = next((each for each in present if each.column == name), polynomial)
                if known.null != polynomial.null:
                    what = f"an expression in which {name} is NULL in one part and not in another"
                    self.scope.refuse(node, "E_EXPR_IN_AGG", what, "COALESCE(x, 0) in each of them")
                if known is polynomial:
                    present.append(polynomial)
            else:
                test = exp.Not(this=exp.Is(this=exp.paren(part.copy()), expression=exp.null()))
                column = self.scope.table.columns[name]
                tested = self.scope.expression(column, test)
                if tested not in conditions:
                    conditions.append(tested)
        return Summand((), tuple(present), tuple(conditions))

    def is_null(self, node: exp.Expr) -> bool:
        """True if a node is without columns, and NULL."""
        if self.columns(node) or self.scope.is_listed(node) or constant_of(node) is not None:
            return False
        test = exp.Is(this=exp.paren(node.copy()), expression=exp.null())
        alone = Operand(self.scope.table.name, None)
        return bool(self.scope.evaluator.mask(alone, self.scope.expression(None, test)).all())

    def leaves(self, node: exp.Expr) -> list[exp.Expr]:
        """The largest parts over single columns that are NULL when an operand is."""
        node = node.unnest()
        columns = self.columns(node)
        if not columns:
            is_value = isinstance(node, exp.Condition) and constant_of(node) is None
            return [node] if is_value else []
        if len(columns) == 1 and not self.is_measure(columns[0], node):
            return [node]
        if isinstance(node, exp.Coalesce):
            return []
        if isinstance(node, exp.Column) or self.clipped(node) is not None:
            return [node]
        return [leaf for child in node.iter_expressions() for leaf in self.leaves(child)]


def _is_filled(node: exp.Coalesce) -> bool:
    """COALESCE(x, 0) of more than a column."""
    is_zero = len(node.expressions) == 1 and constant_of(node.expressions[0]) == 0
    return is_zero and not isinstance(node.this.unnest(), exp.Column)


def _with(summand: Summand, present: Summand) -> Summand:
    """A summand on rows without NULL operands: a measure it already has is not NULL in it."""
    own = {polynomial.column for polynomial in summand.polynomials}
    added = tuple(p for p in present.polynomials if p.column not in own)
    return Summand(
        summand.factors,
        (*summand.polynomials, *added),
        tuple(dict.fromkeys((*summand.conditions, *present.conditions))),
    )


def _day_number(node: exp.Expr) -> exp.Expr:
    """The number of a day, after one that is long ago."""
    start = exp.cast(exp.Literal.string("1970-01-01"), "DATE")
    return exp.DateDiff(this=node.copy(), expression=start, unit=exp.Var(this="DAY"))


def _negated(summands: list[Summand]) -> list[Summand]:
    return [replace(s, factors=(*s.factors, MINUS_ONE)) for s in summands]
