"""Aggregate functions -> primitive sums, and expressions over them for the outer shell.

AVG, VAR and STDDEV are ratios and squares of sums that are measured together; MEDIAN, QUANTILE and
MODE are read off the counts of every value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from dpsql.catalog.domain import Bins
from dpsql.errors import Error, NotSupportedError, ProgrammingError, printable
from dpsql.logical.functions import has, kinds
from dpsql.records import cached_property, dataclass, field, replace
from dpsql.sql.cells.cell_edges import check_edges
from dpsql.sql.measures.centred_moments import centred, is_far, moved, same_but_for_little
from dpsql.sql.measures.column_hints import ranked
from dpsql.sql.measures.mean_weights import MIXED, MeanWeights, read_mean_weights
from dpsql.sql.measures.sum_clips import within
from dpsql.sql.query import Aggregate, Condition, Rank, RunningSum, Summand
from dpsql.sql.rewrites.lists import rank_parts
from dpsql.sql.scope import Scope, condition, conjunction
from dpsql.sql.shell.guarded_values import clipped, spread_from, where_known, where_positive
from dpsql.sql.shell.language import check_scalar, split_test, written_name
from dpsql.sql.shell.whole_numbers import is_integer, marked

if TYPE_CHECKING:
    from dpsql.sql.measures.sums import SumAndCount

RunningOf = Callable[[exp.Window], RunningSum]


Builder = Callable[["Aggregates", exp.Expr, Aggregate], exp.Expr]
"""Writes a call, under the conditions and the window of a shape, over columns of primitive sums."""

BUILDERS: dict[type[exp.Expr], Builder] = {}
"""The builder of each kind of aggregate function, and of those derived from it."""

Further = Callable[[bool], Mapping[type[exp.Expr], Builder]]
"""The builders of aggregates of DISTINCT, or else of those that few statements have."""

LARGE = 2**48
"""Values of which 2^15 may not fit in 64 bits together, such as microseconds since 1970: their sums
are told as doubles."""


def aggregate(*kinds: type[exp.Expr]) -> Callable[[Builder], Builder]:
    """Register what builds aggregate functions of some kinds."""

    def register(build: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(kinds, build))
        return build

    return register


@dataclass
class Aggregates:
    """The primitive sums that one SELECT needs, each once, with its number.

    ``tree`` is the SELECT, None where sums are of values whatever they stand beside.
    """

    scope: Scope
    further: Further
    tree: exp.Expr | None = None
    found: dict[Aggregate, int] = field(default_factory=dict)

    @cached_property
    def weights(self) -> MeanWeights:
        """The weights of means and spreads, which decides of what sums they are made."""
        return MIXED if self.tree is None else read_mean_weights(self.tree)

    def replace(self, node: exp.Expr, running_of: RunningOf) -> exp.Expr | None:
        """The expression over ``a0``, ``a1``, ... that an aggregate is; None if it is none.

        Raises: NotSupportedError (E_AGGREGATE, E_EXPR_IN_AGG, E_WINDOW); ProgrammingError.
        """
        filters: tuple[Condition, ...] = ()
        running = None
        if isinstance(node, exp.Window):
            if not _is_total(node):
                return None
            running = running_of(node)
            node = node.this.this
        if isinstance(node, exp.Filter):
            if not isinstance(node.expression, exp.Where):
                return None
            filters = conjunction(self.scope, node.expression.this)
            node = node.this
        bits = exp.Grouping | exp.GroupingId
        if not isinstance(node, exp.AggFunc | exp.WithinGroup) or isinstance(node, bits):
            return None
        return self.build(node, Aggregate(filters, running=running))

    def build(self, node: exp.Expr, shape: Aggregate) -> exp.Expr:
        """An aggregate function with the conditions and the window of ``shape``."""
        build = self._builder(node)
        if shape.running is not None and not has(node, "linear"):
            self.scope.refuse(node, "E_WINDOW", "a running total of this aggregate", "SUM or COUNT")
        if build is None:
            self.refuse(node)
        return build(self, node, shape)

    def _builder(self, node: exp.Expr) -> Builder | None:
        """The builder of calls of this kind, or else of the next that it derives from."""
        of_distinct = isinstance(node.this, exp.Distinct)
        if not of_distinct and type(node) in BUILDERS:
            return BUILDERS[type(node)]
        further = self.further(of_distinct)
        known = further if of_distinct else {**BUILDERS, **further}
        return next((known[kind] for kind in type(node).__mro__ if kind in known), None)

    @aggregate(*kinds("linear"))
    def total(self, node: exp.Expr, shape: Aggregate) -> exp.Expr:
        """COUNT, COUNT_IF and SUM: one primitive."""
        if isinstance(node, exp.Count):
            self.check_count(node)
        halved = isinstance(node, exp.Sum) and self.weights.sums and self.weighed(node) is not None
        part = self.weights.of_sums if halved else 1.0
        found = self.column(replace(shape, summands=self.linear(node), part=part))
        return marked(found, self.is_whole(node))

    def check_count(self, node: exp.Expr) -> None:
        """Bounds of what a unit adds to a count may say what the catalog says, and no less.

        Raises: NotSupportedError (E_EXPR_IN_AGG).
        """
        bounds, most = self.scope.clip_of(node), self.scope.table.unit.max_rows
        if bounds is not None and not bounds[0] <= 1 <= most <= bounds[1]:
            rows = f"from 1 to {most} rows" if most > 1 else "one row"
            hint = f"contribution_bounds_per_group => (0, {most})"
            what = f"bounds of counts where a privacy unit has {rows}, other than these,"
            self.scope.refuse(node, "E_EXPR_IN_AGG", what, hint)

    def is_whole(self, node: exp.Expr) -> bool:
        """True if a count or a sum is an integer to SQL."""
        if not isinstance(node, exp.Sum):
            return True
        bounds = self.bounds(node.this)
        is_small = bounds is None or max(map(abs, bounds)) < LARGE
        return is_small and is_integer(node.this, self.scope.is_integer)

    def column(self, aggregate: Aggregate) -> exp.Column:
        """The column of a primitive, which is added unless it is there."""
        ordered = sorted(set(aggregate.conditions), key=repr)
        aggregate = replace(aggregate, conditions=tuple(ordered))
        return exp.column(f"a{self.found.setdefault(aggregate, len(self.found))}")

    def linear(self, node: exp.Expr) -> tuple[Summand, ...]:
        """The summands of COUNT, COUNT_IF and SUM."""
        if isinstance(node, exp.Sum):
            return self.amount(node).summands
        if isinstance(node, exp.CountIf):
            return (Summand(conditions=conjunction(self.scope, node.this)),)
        inner = node.this
        if node.args.get("expressions") or inner is None:
            self.refuse(node)
        if isinstance(inner, exp.Star) or not inner.find(exp.Column):
            return self.constant(node, inner)
        if isinstance(inner, exp.Column) and self.scope.is_never_null(inner):
            return (Summand(),)
        if self.counts_cases(inner):
            return self.amount(node).counted
        test = exp.Not(this=exp.Is(this=exp.paren(inner.copy()), expression=exp.null()))
        return (Summand(conditions=(condition(self.scope, test),)),)

    def constant(self, node: exp.Expr, inner: exp.Expr) -> tuple[Summand, ...]:
        if isinstance(inner, exp.Star):
            if any(value for key, value in inner.args.items()):
                self.refuse(node)
            return (Summand(),)
        check_scalar(inner, self.scope.locate)
        if isinstance(inner, exp.Literal):
            return (Summand(),)
        test = exp.Not(this=exp.Is(this=exp.paren(inner.copy()), expression=exp.null()))
        return (Summand(conditions=(condition(self.scope, test),)),)

    def counts_cases(self, inner: exp.Expr) -> bool:
        """True if a counted expression mentions a measure, whose NULLs are cells of its own."""
        columns = [c for c in inner.find_all(exp.Column) if not self.scope.is_listed(c)]
        return any(self.scope.find_column(c, measure=True).domain is None for c in columns)

    def amount(self, node: exp.Expr, inner: exp.Expr | None = None) -> SumAndCount:
        """The amount that each row adds to a sum: an aggregate's argument, or that less a constant.

        Raises: NotSupportedError (E_EXPR_IN_AGG).
        """
        clip, inner = self.scope.clip_of(node), node.this if inner is None else inner
        from dpsql.sql.measures.sums import amount  # counts have no amounts

        if clip is None and not isinstance(node, exp.Count):
            self.check_varied(node, inner)
        return amount(self.scope, inner, clip)

    def check_varied(self, node: exp.Expr, inner: exp.Expr) -> None:
        """Refuse to add up what is all but the same number in every row.

        Raises: NotSupportedError (E_EXPR_IN_AGG).
        """
        alike = same_but_for_little(inner, self.known_bounds)
        if alike is not None:
            what = f"a sum of {_written(alike)}, all but the same number in every row,"
            works = "AVG works" if isinstance(node, exp.Sum) else "AVG of one column works"
            hint = f"{works}, and so does a sum of what is left beside a constant"
            self.scope.refuse(node, "E_EXPR_IN_AGG", what, hint)

    def is_unit(self, node: exp.Column) -> bool:
        return self.scope.find_public(node) is None and self.scope.is_unit(node)

    @aggregate(exp.Avg)
    def average(self, node: exp.Expr, shape: Aggregate) -> exp.Expr:
        inner, centre = self.centred(node)
        found = self.amount(node, inner)
        counted, part = found.counted, 1.0
        known = self.weighed(node)
        if known is not None:  # one count with COUNT(x): weights are for that
            counted, part = self.amount(node).counted, self.weights.part(known)
        total = self.column(replace(shape, summands=found.summands, part=part))
        count = self.column(replace(shape, summands=counted))
        ratio: exp.Expr = exp.Div(this=total, expression=count.copy())
        bounds = self.bounds(node.this)
        return where_positive(count, clipped(moved(ratio, centre), bounds))

    def centred(self, node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
        """The argument of an aggregate less a constant, and the constant."""
        if self.scope.clip_of(node) is not None:
            return node.this, None
        return centred(node.this, self.known_bounds, lone=self.weights != MIXED)

    def weighed(self, node: exp.Expr) -> tuple[float, float] | None:
        """Bounds that are not far from zero of a column, of which a mean is of it less a middle."""
        known = self.known_bounds(node.this)
        is_moved = known is not None and not is_far(*known) and self.centred(node)[1] is not None
        return known if is_moved else None

    def known_bounds(self, node: exp.Expr) -> tuple[float, float] | None:
        """The declared bounds of a column; none where it will be refused."""
        try:
            return self.bounds(node)
        except Error:
            return None

    @aggregate(*kinds("spread"))
    def spread(self, node: exp.Expr, shape: Aggregate) -> exp.Expr:
        inner, _ = self.centred(node)
        once = self.amount(node, inner)
        from dpsql.sql.measures.sums import squared  # counts have no squares

        twice = squared(self.scope, inner, self.scope.clip_of(node))
        first = self.column(replace(shape, summands=once.summands))
        second = self.column(replace(shape, summands=twice.summands))
        count = self.column(replace(shape, summands=once.counted))
        return spread_from(node, (first, second, count), self.bounds(node.this))

    def bounds(self, node: exp.Expr) -> tuple[float, float] | None:
        """The declared bounds of a bare number column that is private."""
        inner = node.unnest()
        if not isinstance(inner, exp.Column) or self.scope.find_public(inner) is not None:
            return None
        clip = self.scope.clip_of(node.parent) if node.parent is not None else None
        column = self.scope.find_column(inner, measure=True)
        return clip or self.scope.cut_of(column) or column.number_bounds

    @aggregate(*kinds("rank"), exp.WithinGroup)
    def ranked(self, node: exp.Expr, shape: Aggregate) -> exp.Expr:
        """MEDIAN, QUANTILE and MODE of a column with a domain."""
        parts = rank_parts(node)
        if parts is None:
            self.refuse(node)
        kind, value, place, descending = parts
        if not isinstance(place, exp.Literal) or place.is_string:
            hint = "0.5, or [0.25, 0.5, 0.75]"
            self.scope.refuse(place, "E_AGGREGATE", "a quantile that is not a number", hint)
        quantile = float(place.name)
        if len({c.name.casefold() for c in value.find_all(exp.Column)}) > 1:
            value, shape = self.tested(value, shape)
        self.check_ranked(node, value)
        columns = [self.scope.find_column(c) for c in value.find_all(exp.Column)]
        if len({column.name for column in columns}) != 1:
            self.refuse(node)
        column, bounds, inner = columns[0], self.scope.clip_of(node), value.unnest()
        own = isinstance(inner, exp.Column) and self.scope.find_public(inner) is None
        in_bins = isinstance(column.domain, Bins)  # clipped afterwards: no bin is cut through
        if bounds is not None and not in_bins:
            value = within(value, bounds)
        check_scalar(value, self.scope.locate)
        if not isinstance(value.unnest(), exp.Column):
            for tree in self.scope.written_out(value):
                check_edges(column, tree, self.scope.locate, self.scope.evaluator.is_same)
        if not 0 <= quantile <= 1:
            raise ProgrammingError(
                "E_LITERAL",
                f"the quantile {quantile} is not between 0 and 1",
                hint="QUANTILE_CONT(column, 0.9)",
                span=self.scope.locate(node),
            )
        if kind == "cont" and own and column.type not in ("integer", "number", "decimal"):
            self.scope.refuse(
                node,
                "E_AGGREGATE",
                f"interpolation of {column.type} values",
                f"QUANTILE_DISC({_written(value)}, {quantile:g}) works",
            )
        found = self.scope.expression(column, value)
        rank = Rank(found, kind, 1 - quantile if descending else quantile)
        whole = kind != "cont" and is_integer(value, self.scope.is_integer)
        ranked = marked(self.column(replace(shape, rank=rank)), whole, rounded=True)
        if bounds is None or not in_bins:
            return ranked
        return where_known(ranked, clipped(ranked.copy(), bounds))

    def check_ranked(self, node: exp.Expr, value: exp.Expr) -> None:
        """Refuse quantiles of a measure: they are read off the counts of cells, and it has none.

        Raises: ProgrammingError (E_DOMAIN).
        """
        for each in value.find_all(exp.Column):
            if self.scope.find_public(each) is None:
                column = self.scope.find_column(each, measure=True)
                if column.domain is None and column.sought is None:
                    call = node.this if isinstance(node, exp.WithinGroup) else node
                    called = written_name(call, self.scope.locate)
                    raise ProgrammingError(
                        "E_DOMAIN",
                        f"{called} counts the rows of every bin: column {printable(column.name)} "
                        "has bounds and no bins",
                        hint=ranked(self.scope.table, column, value.unnest() is each),
                        span=self.scope.locate(each),
                    )

    def tested(self, value: exp.Expr, shape: Aggregate) -> tuple[exp.Expr, Aggregate]:
        """A CASE that is NULL elsewhere as what it is, under its test."""
        inner, tests = split_test(value)
        found = [each for test in tests for each in conjunction(self.scope, test)]
        return inner, replace(shape, conditions=(*shape.conditions, *found))

    def refuse(self, node: exp.Expr) -> NoReturn:
        """Refuse an aggregate by its name, and say what works instead."""
        from dpsql.sql.measures.aggregate_hints import instead_of  # only what is refused needs it

        name = written_name(node, self.scope.locate)
        if isinstance(node.this, exp.Distinct):
            name = f"{name}(DISTINCT)"
        raise NotSupportedError(
            "E_AGGREGATE",
            f"the aggregate {name}{'' if name.endswith(')') else '()'} is not supported",
            hint=instead_of(self.scope, self.answers, node),
            span=self.scope.locate(node),
        )

    def answers(self, node: exp.Expr) -> bool:
        """True if an aggregate would be answered here; nothing is noted."""
        from dpsql.sql.cells.evaluate import Operand  # only what is refused needs it

        kept = len(self.found)
        try:
            self.build(node, Aggregate())
            for found in () if self.scope.joined else list(self.found)[kept:]:
                for each in found.expressions():
                    column = None if each.column is None else self.scope.table.columns[each.column]
                    self.scope.evaluator.values(Operand(self.scope.table.name, column), each)
        except Error:
            return False
        finally:
            while len(self.found) > kept:
                self.found.popitem()
        return True


def _written(node: exp.Expr) -> str:
    return printable(node.sql("duckdb", comments=False))


def _is_total(node: exp.Window) -> bool:
    """True if a window is SUM over COUNT or SUM: a sum over groups of rows."""
    outer = node.this
    if not isinstance(outer, exp.Sum):
        return False
    inner = outer.this
    inner = inner.this if isinstance(inner, exp.Filter) else inner
    return has(inner, "linear") and not isinstance(inner.this, exp.Distinct)
