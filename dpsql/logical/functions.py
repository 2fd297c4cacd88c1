"""The table of functions: an entry for each, with all that is known of it.

An operator, a clause of a window and a name are functions here, too: whatever may stand in an
expression of SQL has an entry, and whatever has none is refused by name. What else asks about a
function, asks this table: one line is all that another one needs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

from sqlglot import exp

from dpsql.records import dataclass

Fact = Literal[
    # where it may stand
    "rows",  # in an expression over a row, and over answers
    "lists",  # over answers alone, of which there may be lists, or texts in JSON
    "windows",  # in a window over answers, or as one
    "groups",  # as an aggregate of answers
    # what it makes of NULL, and of what it cannot be worked out of
    "strict",  # NULL where any argument is NULL
    "strict_first",  # NULL where the first argument is
    "null_all",  # NULL where all arguments are
    "skips",  # an aggregate that passes over rows in which an argument is NULL
    "total",  # neither NULL nor NaN where no argument is; what is too large may be an error
    "partial",  # NaN of some finite numbers, which is refused; of aggregates, an error
    # how its value moves with its arguments
    "monotone",  # never turns in any one argument while the others stay
    "monotone_first",  # never turns in the first
    "steps",  # has few values in a range, if the first argument never turns and the rest stay
    "arithmetic",  # adds, multiplies and divides
    "choice",  # is one of its values, or NULL
    "clips",  # may keep a number within bounds
    "order",  # says which of two is greater
    "equality",  # says whether two are equal
    "sameness",  # says whether two are equal, of NULL too
    "pattern",  # says whether a text has a form
    "reads_days",  # takes a day for the instant at which it begins, and no more of it
    "shift",  # goes on in time, past midnight to the beginning of the day
    # types
    "whole",  # an integer
    "whole_first",  # an integer if its first argument is one
    "whole_all",  # an integer if all of its arguments are
    "integral",  # of integers it is another function than of other numbers
    # texts
    "grows",  # a text that may be longer than the arguments together
    # aggregates
    "aggregate",  # has one value for many rows
    "per_row",  # sees rows one by one, though the parser has it among aggregates
    "paired",  # of two expressions
    "ordered",  # depends on the order of rows
    "linear",  # is a sum over rows
    "spread",  # is a variance, or the root of one
    "sample",  # divides by one less than the number of rows
    "root",  # is the root of a variance
    "rank",  # is read off the counts of all values
    "bounded",  # may be given bounds of what a group takes of a unit
    "place",  # is the place of a row among others, or tells it
]
_GROUPS = {
    "plain": "rows strict total",
    "picked": "rows null_all total choice monotone whole_all",
    "grouped": "groups aggregate skips",
    "placed": "windows per_row place",
    "taken": "windows per_row whole_first",
    "over": "windows groups aggregate skips",
}
"""Facts that many have together."""
_FACTS = frozenset(get_args(Fact))

Length = Callable[[exp.Expr, Sequence[int]], int]
"""Bounds the length of a text, given a call and the lengths of its arguments."""
UNBOUNDED = 10**12
"""More characters than any text may have."""
NUMBER = 400
"""More characters than any number takes as text: a DOUBLE has 309 before its point at most."""
_SHOWN = 64
"""More characters than any letter of a format of strftime shows."""


@dataclass(frozen=True, slots=True)
class Function:
    """Something that may be called, by the parser's class of it, or by its name if it has none.

    ``arguments`` are those that the parser may set: what is written and not among them is refused.
    ``names`` are those that people write where the parser has others. ``part`` is the unit of a
    calendar or clock that decides on the value. ``slopes`` are the derivatives in the arguments,
    as SQL over the arguments ``{0}`` and ``{1}``, the slope ``{s}`` of the one and the call
    ``{f}``. ``length`` bounds the length of a text; without it, that is the longest argument's.
    ``spelled`` is what DuckDB calls a function of another database, over the arguments.
    ``summed`` is the sum over the rows of a unit that an aggregate is, and that of its different
    values; ``running`` is what a window over these rows is.
    """

    kind: type[exp.Expr] | str
    arguments: frozenset[str]
    facts: frozenset[str]
    names: tuple[str, ...] = ()
    part: str | None = None
    slopes: tuple[str, ...] = ()
    length: Length | None = None
    spelled: str | None = None
    summed: tuple[str, ...] = ()
    running: str | None = None

    def called(self) -> Iterator[str]:
        """The names that people write, in lower case; those without a call have none."""
        if isinstance(self.kind, str):
            yield self.kind
        elif issubclass(self.kind, exp.Func):
            yield from self.names
            for plain in map(str.lower, self.kind.sql_names()):
                if plain not in _NOT_CALLED and ("_" not in plain or plain.startswith(_UNDERLINED)):
                    yield plain


MODIFIERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""Clauses that stand around a call and are part of it."""


def _of(
    kind: type[exp.Expr] | str, arguments: str, facts: str, names: str = "", **known: Any
) -> Function:
    words = frozenset(" ".join(_GROUPS.get(each, each) for each in facts.split()).split())
    assert words <= _FACTS, words - _FACTS
    return Function(kind, frozenset(arguments.split()), words, tuple(names.split()), **known)


def _first(_: exp.Expr, lengths: Sequence[int]) -> int:
    return lengths[0]


def _together(_: exp.Expr, lengths: Sequence[int]) -> int:
    return sum(lengths)


def _separated(_: exp.Expr, lengths: Sequence[int]) -> int:
    return sum(lengths) + lengths[0] * len(lengths)


def _in_digits(_: exp.Expr, lengths: Sequence[int]) -> int:
    return 8 * lengths[0]


def _replaced(_: exp.Expr, lengths: Sequence[int]) -> int:
    return lengths[0] + lengths[0] * max(lengths[2:], default=0)


def _rewritten(node: exp.Expr, lengths: Sequence[int]) -> int:
    text, new = lengths[0], node.args.get("replacement")
    if new is None:
        return text
    added = lengths[2]
    # groups that it names are parts of the text that do not overlap
    named = new.name.count("\\") if isinstance(new, exp.Literal) else added
    return text + (text + 1) * added + text * named


def _shown(_: exp.Expr, lengths: Sequence[int]) -> int:
    return _SHOWN * lengths[1]


def _padded(node: exp.Expr, _: Sequence[int]) -> int:
    return _written(node.expression)


def _repeated(node: exp.Expr, lengths: Sequence[int]) -> int:
    return lengths[0] * _written(node.args["times"])


def _formatted(node: exp.Expr, lengths: Sequence[int]) -> int:
    """Bound what a pattern makes: places take a part each, and at most the widths that it names."""
    pattern = node.this if isinstance(node, exp.Format) else next(iter(node.expressions), None)
    if pattern is None:
        return 0
    if not isinstance(pattern, exp.Literal) or re.search(r"\*|\{[^}]*\{", pattern.name):
        return UNBOUNDED
    places = max(1, pattern.name.count("{"), pattern.name.count("%"))
    widths = sum(map(int, re.findall(r"\d+", pattern.name)))
    return len(pattern.name) + places * max([*lengths[1:], NUMBER]) + widths


def _written(node: exp.Expr) -> int:
    """A length that is written out; more than is allowed where it is not."""
    number = isinstance(node, exp.Literal) and node.name.isdigit()
    return int(node.name) if number else UNBOUNDED


_ONE, _TWO = "this", "this expression"
_SAME = ("{s}",)
_PRODUCT = "({1}) * ({s})", "({0}) * ({s})"
_QUOTIENT = "({s}) / ({1})", "-({0}) * ({s}) / (({1}) * ({1}))"

_WEIGHTED = "SUM((x) * (y)) / NULLIF(SUM(CASE WHEN NOT (x) IS NULL THEN y END), 0)"
_DIVIDED = "THEN 0 ELSE (x) / (y) END"

_ENTRIES = (
    _of(exp.Paren, _ONE, "plain monotone whole_all arithmetic", slopes=_SAME),
    _of(exp.And, _TWO, "rows null_all total"),
    _of(exp.Or, _TWO, "rows null_all total"),
    _of(exp.Not, _ONE, "plain"),
    _of(exp.EQ, _TWO, "plain equality reads_days"),
    _of(exp.NEQ, _TWO, "plain equality reads_days"),
    _of(exp.LT, _TWO, "plain order reads_days"),
    _of(exp.LTE, _TWO, "plain order reads_days"),
    _of(exp.GT, _TWO, "plain order reads_days"),
    _of(exp.GTE, _TWO, "plain order reads_days"),
    _of(exp.NullSafeEQ, _TWO, "rows total sameness"),
    _of(exp.NullSafeNEQ, _TWO, "rows total sameness"),
    _of(exp.Is, _TWO, "rows total reads_days"),
    _of(exp.Between, "this low high", "rows strict_first total reads_days"),
    _of(exp.In, "this expressions", "rows strict_first total reads_days"),
    _of(exp.Like, "this expression negate", "plain pattern"),
    _of(exp.ILike, "this expression negate", "plain pattern"),
    _of(exp.Escape, _TWO, "plain"),
    _of(exp.Glob, _TWO, "plain pattern"),
    _of(exp.SimilarTo, _TWO, "plain pattern"),
    _of(exp.RegexpLike, _TWO, "plain", names="regexp_matches"),
    _of(exp.RegexpILike, _TWO, "plain"),
    _of(exp.RegexpFullMatch, _TWO, "plain"),
    _of(exp.Add, _TWO, "plain monotone whole_all shift arithmetic", slopes=("{s}", "{s}")),
    _of(exp.Sub, _TWO, "plain monotone whole_all shift arithmetic", slopes=("{s}", "-({s})")),
    _of(exp.Mul, _TWO, "plain monotone whole_all arithmetic", slopes=_PRODUCT),
    _of(exp.Div, "this expression typed safe", "plain monotone_first arithmetic", slopes=_QUOTIENT),
    _of(exp.IntDiv, _TWO, "plain monotone_first steps whole_all integral"),
    _of(exp.Mod, _TWO, "plain whole_all integral"),
    _of(exp.Neg, _ONE, "plain monotone whole_all arithmetic", slopes=("-({s})",)),
    _of(exp.Pow, _TWO, "rows strict partial"),
    _of(exp.BitwiseAnd, _TWO, "plain whole_all integral"),
    _of(exp.BitwiseOr, _TWO, "plain whole_all integral"),
    _of(exp.BitwiseLeftShift, _TWO, "plain whole_all integral"),
    _of(exp.BitwiseRightShift, _TWO, "plain whole_all integral"),
    _of(exp.Case, "this ifs default", "rows choice null_all clips"),
    _of(exp.If, "this true false", "rows choice null_all clips"),
    _of(exp.Coalesce, "this expressions", "picked", slopes=_SAME),
    _of(exp.Nullif, _TWO, "rows strict_first whole_all", slopes=("{s}", "")),
    _of(exp.Greatest, "this expressions ignore_nulls", "picked clips", slopes=_SAME),
    _of(exp.Least, "this expressions ignore_nulls", "picked clips", slopes=_SAME),
    _of(exp.Cast, "this to", "plain monotone steps"),
    _of(exp.TryCast, "this to safe", "rows strict"),
    _of(exp.DataType, "this expressions nested", "rows total"),
    _of(exp.DataTypeParam, _ONE, "rows total"),
    _of(exp.Interval, "this unit", "rows total"),
    _of(exp.Var, _ONE, "rows total"),
    _of(exp.Extract, _TWO, "plain reads_days"),
    _of(exp.TimestampTrunc, "this unit", "plain monotone reads_days", names="date_trunc"),
    _of(exp.DateTrunc, "unit this unabbreviate", "plain monotone reads_days"),
    _of(exp.Year, _ONE, "plain monotone whole reads_days"),
    _of(exp.Quarter, _ONE, "plain whole", part="quarter"),
    _of(exp.Month, _ONE, "plain whole", part="month"),
    _of(exp.Week, _ONE, "plain whole", part="week"),
    _of(exp.Day, _ONE, "plain whole", part="day"),
    _of(exp.DayOfWeek, _ONE, "plain whole", part="day"),
    _of(exp.DayOfWeekIso, _ONE, "plain whole", part="day"),
    _of(exp.DayOfYear, _ONE, "plain whole", part="day"),
    _of(exp.Monthname, _ONE, "plain", part="month"),
    _of(exp.Dayname, _ONE, "plain", part="day"),
    _of(exp.WeekOfYear, _ONE, "plain whole", part="week"),
    _of(exp.DayOfMonth, _ONE, "plain whole", part="day"),
    _of(exp.Hour, _ONE, "plain whole", part="hour"),
    _of(exp.Minute, _ONE, "plain whole", part="minute"),
    _of(exp.Second, _ONE, "plain whole", part="second"),
    _of(exp.LastDay, _ONE, "plain monotone", names="last_day"),
    _of(exp.DateFromParts, "year month day", "plain"),
    _of(
        exp.DateDiff,
        "this expression unit date_part_boundary",
        "plain monotone reads_days whole",
        names="date_diff",
    ),
    _of(exp.DateAdd, _TWO, "plain monotone shift", names="date_add"),
    _of(exp.DateBin, _TWO, "plain monotone shift"),
    _of(exp.TimeToStr, "this format", "plain reads_days", length=_shown, names="strftime"),
    _of(exp.TimeToUnix, _ONE, "plain monotone"),
    _of(exp.StrToTime, "this format", "plain"),
    _of(exp.RegexpExtract, "this expression group null_if_pos_overflow", "plain", length=_first),
    _of(
        exp.RegexpReplace,
        "this expression replacement modifiers single_replace",
        "plain grows",
        length=_rewritten,
    ),
    _of(exp.Reverse, _ONE, "plain"),
    _of(exp.Abs, _ONE, "plain whole_all"),
    _of(exp.Ceil, _ONE, "plain monotone steps"),
    _of(exp.Floor, _ONE, "plain monotone steps"),
    _of(exp.Round, "this decimals", "plain monotone_first steps whole_first"),
    _of(exp.Trunc, "this decimals", "plain monotone_first steps whole_first"),
    _of(exp.Sign, _ONE, "plain monotone steps whole"),
    _of(exp.Sqrt, _ONE, "rows strict partial monotone", slopes=("({s}) / nullif(2 * {f}, 0)",)),
    _of(exp.Cbrt, _ONE, "plain monotone"),
    _of(exp.Exp, _ONE, "plain monotone"),
    _of(exp.Ln, _ONE, "rows strict partial monotone"),
    _of(exp.Log, _TWO, "rows strict partial"),
    _of(exp.IsNan, _ONE, "plain"),
    _of(exp.Lower, _ONE, "plain"),
    _of(exp.Upper, _ONE, "plain"),
    _of(exp.Initcap, _TWO, "plain"),
    _of(exp.Length, _ONE, "plain whole"),
    _of(exp.Trim, "this expression position", "plain", length=_first),
    _of(exp.Substring, "this start length", "plain", length=_first),
    _of(exp.Left, _TWO, "plain", length=_first),
    _of(exp.Right, _TWO, "plain", length=_first),
    _of(exp.Format, "this expressions", "plain grows", length=_formatted),
    _of(exp.StartsWith, _TWO, "plain", names="starts_with"),
    _of(exp.EndsWith, _TWO, "plain", names="ends_with"),
    _of(exp.Contains, _TWO, "plain"),
    _of(exp.StrPosition, "this substr", "plain whole"),
    _of(exp.DPipe, "this expression safe", "plain", length=_together),
    _of(exp.Concat, "expressions safe coalesce", "rows total", length=_together),
    _of(exp.Replace, "this expression replacement", "plain grows", length=_replaced),
    _of(exp.SplitPart, "this delimiter part_index", "plain", length=_first, names="split_part"),
    _of(exp.Sin, _ONE, "plain"),
    _of(exp.Cos, _ONE, "plain"),
    _of(exp.Tan, _ONE, "plain"),
    _of(exp.Cot, _ONE, "plain"),
    _of(exp.Asin, _ONE, "rows strict partial monotone"),
    _of(exp.Acos, _ONE, "rows strict partial monotone"),
    _of(exp.Atan, _ONE, "plain monotone"),
    _of(exp.Atan2, _TWO, "plain"),
    _of(exp.Sinh, _ONE, "plain monotone"),
    _of(exp.Cosh, _ONE, "plain"),
    _of(exp.Tanh, _ONE, "plain monotone"),
    _of(exp.Asinh, _ONE, "plain monotone"),
    _of(exp.Acosh, _ONE, "rows strict partial monotone"),
    _of(exp.Atanh, _ONE, "rows strict partial monotone"),
    _of(exp.Degrees, _ONE, "plain monotone"),
    _of(exp.Radians, _ONE, "plain monotone"),
    _of(exp.Pi, "", "rows total"),
    _of(exp.Factorial, _ONE, "plain whole monotone"),
    _of(exp.BitwiseXor, _TWO, "plain whole_all integral"),
    _of(exp.BitwiseNot, _ONE, "plain whole_all integral monotone"),
    _of(exp.Ascii, _ONE, "plain whole"),
    _of(exp.Unicode, _ONE, "plain whole"),
    _of(exp.Chr, "expressions", "plain"),
    _of(exp.BitLength, _ONE, "plain whole", names="bit_length"),
    _of(exp.Hex, _ONE, "plain grows", length=_in_digits),
    _of(exp.MD5, _ONE, "plain"),
    _of(exp.Levenshtein, _TWO, "plain whole"),
    _of(exp.Pad, "this expression fill_pattern is_left", "plain grows", length=_padded),
    _of(exp.Repeat, "this times", "plain grows", length=_repeated),
    _of(exp.Translate, "this from_ to", "plain", length=_first),
    _of(
        exp.ConcatWs,
        "expressions safe coalesce",
        "rows strict_first total grows",
        length=_separated,
        names="concat_ws",
    ),
    _of(exp.Bracket, "this expressions", "plain"),
    _of(exp.Slice, _TWO, "plain"),
    _of(exp.Column, "this table", "rows"),
    _of(exp.Identifier, "this quoted", "rows total"),
    _of(exp.Literal, "this is_string", "rows total"),
    _of(exp.Boolean, _ONE, "rows total"),
    _of(exp.Null, "", "rows"),
    _of(exp.Array, "expressions", "lists"),
    _of(exp.ArraySize, _TWO, "lists"),
    _of(exp.Count, "this big_int", "over whole linear", summed=("count", "distinct")),
    _of(exp.CountIf, _ONE, "over whole linear", names="count_if"),
    _of(exp.Sum, _ONE, "over whole_first linear bounded", summed=("sum", "distinct_sum")),
    _of(exp.Avg, _ONE, "over bounded", summed=("mean", "distinct_mean")),
    _of(exp.Min, _ONE, "over whole_first", summed=("least",), running="running_least"),
    _of(exp.Max, _ONE, "over whole_first", summed=("greatest",), running="running_greatest"),
    _of(exp.Median, _ONE, "over rank"),
    _of(exp.PercentileCont, _TWO, "over rank", names="quantile_cont percentile_cont"),
    _of(exp.PercentileDisc, _TWO, "over rank", names="quantile_disc percentile_disc"),
    _of(exp.Quantile, "", "aggregate skips rank"),
    _of(exp.ApproxQuantile, "", "aggregate skips rank", names="approx_quantile"),
    _of("approx_quantiles", "", "aggregate rank"),
    _of(exp.Variance, _ONE, "over partial spread sample bounded"),
    _of(exp.VariancePop, _ONE, "over partial spread bounded"),
    _of(exp.Stddev, _ONE, "over partial spread sample root bounded", names="stddev"),
    _of(exp.StddevPop, _ONE, "over partial spread root bounded"),
    _of(exp.StddevSamp, _ONE, "over partial spread sample root bounded"),
    _of(exp.LogicalAnd, _ONE, "over", names="bool_and", summed=("least",)),
    _of(exp.LogicalOr, _ONE, "over", names="bool_or", summed=("greatest",)),
    _of(exp.AnyValue, _ONE, "grouped whole_first", names="any_value"),
    _of(exp.ArgMax, "this expression count", "grouped paired", names="arg_max max_by"),
    _of(exp.ArgMin, "this expression count", "grouped paired", names="arg_min min_by"),
    _of(exp.Mode, _ONE, "over rank"),
    _of(exp.Skewness, _ONE, "grouped partial"),
    _of(exp.Kurtosis, _ONE, "grouped partial"),
    _of(exp.Corr, _TWO, "grouped partial paired"),
    _of(exp.CovarPop, _TWO, "grouped partial paired"),
    _of(exp.CovarSamp, _TWO, "grouped partial paired"),
    _of(exp.RegrSlope, _TWO, "grouped partial paired"),
    _of(exp.RegrIntercept, _TWO, "grouped partial paired"),
    _of(exp.RegrR2, _TWO, "grouped partial paired"),
    _of(exp.RegrCount, _TWO, "grouped partial paired"),
    _of(exp.RegrAvgx, _TWO, "grouped partial paired"),
    _of(exp.RegrAvgy, _TWO, "grouped partial paired"),
    _of(exp.RegrSxx, _TWO, "grouped partial paired"),
    _of(exp.RegrSyy, _TWO, "grouped partial paired"),
    _of(exp.RegrSxy, _TWO, "grouped partial paired"),
    _of(exp.ArrayAgg, _ONE, "groups aggregate ordered", names="list array_agg"),
    _of(exp.GroupConcat, "this separator", "grouped ordered", names="string_agg"),
    _of(exp.First, _ONE, "groups aggregate ordered"),
    _of(exp.Last, _ONE, "groups aggregate ordered"),
    _of(exp.Window, "this partition_by order spec over", "windows whole_first"),
    _of(exp.WindowSpec, "kind start start_side end end_side exclude", "windows"),
    _of(exp.Order, "expressions", "windows"),
    _of(exp.Ordered, "this desc nulls_first", "windows"),
    _of(exp.RowNumber, _ONE, "placed whole", names="row_number", running="row_number"),
    _of(exp.Rank, "expressions", "placed whole", running="rank"),
    _of(exp.DenseRank, "expressions", "placed whole", names="dense_rank", running="dense_rank"),
    _of(exp.PercentRank, "expressions", "placed", names="percent_rank"),
    _of(exp.CumeDist, "expressions", "placed", names="cume_dist"),
    _of(exp.Ntile, _ONE, "placed whole"),
    _of(exp.Lag, "this offset default", "taken", running="previous"),
    _of(exp.Lead, "this offset default", "taken", running="previous"),
    _of(exp.FirstValue, _ONE, "taken", names="first_value", running="first_value"),
    _of(exp.LastValue, _ONE, "taken", names="last_value", running="last_value"),
    _of(exp.NthValue, "this offset", "taken", names="nth_value"),
    _of(exp.Filter, _TWO, "windows whole_first"),
    _of(exp.Where, _ONE, "windows"),
    _of(exp.Star, "", "windows"),
    *(
        _of(name, "", "plain")
        for name in (
            *("suffix", "prefix", "isfinite", "isinf", "even", "signbit", "left_grapheme"),
            *("right_grapheme", "strip_accents", "jaccard", "jaro_similarity"),
            "jaro_winkler_similarity",
        )
    ),
    *(
        _of(name, "", "plain whole")
        for name in (
            *("bit_count", "gcd", "greatest_common_divisor", "lcm", "least_common_multiple"),
            *("strlen", "length_grapheme", "hamming", "mismatches", "damerau_levenshtein"),
            "editdist3",
        )
    ),
    *(_of(name, "", "plain monotone_first") for name in ("round_even", "roundbankers")),
    _of("fmod", "", "rows strict partial"),
    _of("days_in_month", "", "plain whole", part="month"),
    _of("printf", "", "plain grows", length=_formatted),
    *(_of(name, "", "lists") for name in ("json_extract", "json_extract_string")),
    *(
        _of(name, "this expressions", "grouped partial")
        for name in ("product", "mad", "entropy", "kurtosis_pop")
    ),
    *(_of(name, "x", "aggregate bounded", spelled="AVG(x)") for name in ("mean", "favg")),
    *(
        _of(name, "x", "aggregate bounded", spelled="SUM(x)")
        for name in ("fsum", "kahan_sum", "sumkahan", "sum_no_overflow")
    ),
    *(
        _of(name, "x", "aggregate", spelled="EXP(AVG(LN(x)))")
        for name in ("geomean", "geometric_mean")
    ),
    _of("var", "x", "aggregate", spelled="VARIANCE(x)"),
    _of("sem", "x", "aggregate", spelled="STDDEV_POP(x) / SQRT(COUNT(x))"),
    *(_of(name, "x y", "aggregate", spelled=_WEIGHTED) for name in ("weighted_avg", "wavg")),
    _of("approx_percentile", "x y", "aggregate rank", spelled="APPROX_QUANTILE(x, y)"),
    *(
        _of(name, "", "aggregate")
        for name in (
            *("arbitrary", "arg_max_null", "arg_max_nulls_last", "arg_min_null", "bitstring_agg"),
            *("arg_min_nulls_last", "combine_aggr", "count_star", "decimal_average", "histogram"),
            *("histogram_exact", "lttb", "reservoir_quantile", "variant_group_object"),
        )
    ),
    *(
        _of(name, "x", "", spelled=f"EXTRACT({name.upper()} FROM x)")
        for name in (
            *("weekday", "yearweek", "century", "decade", "millennium", "era", "isoyear"),
            "julian",
        )
    ),
    _of("timezone", "x y", "", spelled="y AT TIME ZONE x"),
    _of("iff", "x y z", "", spelled="IF(x, y, z)"),
    _of("zeroifnull", "x", "", spelled="COALESCE(x, 0)"),
    _of("isnull", "x y", "", spelled="COALESCE(x, y)"),
    _of("nullifzero", "x", "", spelled="NULLIF(x, 0)"),
    _of("square", "x", "", spelled="(x) * (x)"),
    _of("div0", "x y", "", spelled=f"CASE WHEN (y) = 0 {_DIVIDED}"),
    _of("div0null", "x y", "", spelled=f"CASE WHEN (y) = 0 OR (y) IS NULL {_DIVIDED}"),
    _of("eomonth", "x", "", spelled="LAST_DAY(x)"),
    _of(exp.Grouping, "", "per_row"),
)
TABLE = {each.kind: each for each in _ENTRIES}
"""Every function by the parser's class, or by name, in lower case."""


def find(node: exp.Expr) -> Function | None:
    """The entry of what a node is or calls; None for what is refused."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return TABLE.get(str(node.this).lower())
    return TABLE.get(type(node))


def has(node: exp.Expr, *facts: Fact) -> bool:
    """True if any of some facts holds of the function that a node is.

    >>> from sqlglot import parse_one
    >>> has(parse_one("FLOOR(x)"), "monotone"), has(parse_one("SIN(x)"), "monotone", "choice")
    (True, False)
    """
    found = find(node)
    return found is not None and not found.facts.isdisjoint(facts)


def is_aggregate(node: exp.Expr) -> bool:
    """True if a node is a call of an aggregate, without what stands around it."""
    if isinstance(node, exp.Anonymous):
        return has(node, "aggregate")
    return isinstance(node, exp.AggFunc) and not has(node, "per_row")


def called(node: exp.Expr) -> exp.Expr:
    """The call itself, without FILTER and the like around it."""
    while isinstance(node, MODIFIERS):
        node = node.this
    return node


def has_aggregates(node: exp.Expr) -> bool:
    """True if a SELECT or an expression aggregates, outside windows and sub-queries.

    >>> from sqlglot import parse_one
    >>> has_aggregates(parse_one("SELECT SUM(a) OVER () FROM t"))
    False
    >>> has_aggregates(parse_one("SELECT SUM(SUM(a)) OVER () FROM t"))
    True
    """
    if isinstance(node, exp.Select):
        clauses = (node.args.get(each) for each in ("having", "qualify", "order"))
        return any(map(has_aggregates, filter(None, (*node.expressions, *clauses))))
    if isinstance(node, exp.Query):
        return False
    parts = node.iter_expressions()
    if isinstance(node, exp.Window):  # what it calls is of a window, what that is of is not
        beside = (each for each in parts if each is not node.this)
        return any(map(has_aggregates, (*called(node.this).iter_expressions(), *beside)))
    is_one = isinstance(node, exp.AggFunc | exp.WithinGroup) or is_aggregate(node)
    return is_one or any(map(has_aggregates, parts))


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition that are joined by AND, in the order written."""
    parts, found = [tree], []
    while parts:
        node = parts.pop()
        inner = node.unnest()
        if isinstance(inner, exp.And):
            parts += [inner.expression, inner.this]
        else:
            found.append(node)
    return found


def kinds(*facts: Fact) -> tuple[type[exp.Expr], ...]:
    """The parser's classes of all functions that any of some facts holds of."""
    return tuple(
        each.kind
        for each in TABLE.values()
        if not isinstance(each.kind, str) and not each.facts.isdisjoint(facts)
    )


MIRRORED: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
"""Comparisons that say the same of two sides that are exchanged, where it is another comparison."""
INVERSE: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
}
"""Comparisons, each with that which says NOT of it; both are unknown of NULL."""


def is_null_where(node: exp.Expr, is_null: Callable[[exp.Column], bool]) -> bool:
    """True if an expression is NULL wherever some columns are.

    >>> from sqlglot import parse_one
    >>> [is_null_where(parse_one(s), lambda c: c.name == "x") for s in ("x + 1 > y", "x IS NULL")]
    [True, False]
    """
    if isinstance(node, exp.Column | exp.Null):
        return isinstance(node, exp.Null) or is_null(node)
    tested = isinstance(node, exp.Case | exp.If)  # what is tested is not what is chosen
    parts = [each for each in node.iter_expressions() if not tested or each.arg_key != "this"]
    found = [is_null_where(each, is_null) for each in parts]
    if has(node, "strict"):
        return any(found)
    if has(node, "strict_first"):
        return found[0]
    return has(node, "null_all") and all(found)


SETS = (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple)
"""Elements of GROUP BY that are made of keys."""
INTEGER_TYPES = (
    *(exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT),
    exp.DType.INT128,
)
REAL_TYPES = (exp.DType.FLOAT, exp.DType.DOUBLE)
ORDERED_TYPES = (
    *(*INTEGER_TYPES, *REAL_TYPES, exp.DType.DECIMAL),
    *(exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ),
)
"""Types in which values that are cast stay in order."""
TYPES = {
    *(*ORDERED_TYPES, exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.BOOLEAN, exp.DType.TIME),
}
RANDOM = {
    *("now", "current_timestamp", "current_date", "current_time", "today", "random", "rand"),
    *("uuid", "gen_random_uuid", "get_current_timestamp", "transaction_timestamp", "localtime"),
    *("localtimestamp", "setseed", "nextval", "age"),
}
"""Functions of the same arguments that are not always the same; all others are deterministic."""

_UNDERLINED = ("reg", "cov", "var", "std")
"""Beginnings of names that have an underscore for the parser and for people."""
_NOT_CALLED = {"and", "or", "case", "cast", "pad"}
"""Functions of the parser that people do not write so."""
_OWN = ("dp_", "anon_")
"""Beginning of the names of dpsql's own functions."""
CUTOFF = 0.76
"""Nearness that a name needs to be suggested: cuont and uper are, foo is not."""


def names(*places: Fact) -> list[str]:
    """The names of the functions that may stand in some places, as DuckDB spells them."""
    found = (each for each in TABLE.values() if not each.facts.isdisjoint(places))
    return list(dict.fromkeys(name for each in found for name in each.called()))


def is_function(name: str) -> bool:
    """True if a function of this name works, with other arguments it may be."""
    return name.lower() in names("rows", "groups")


def nearest_function(name: str) -> str | None:
    """The function that a name which is none comes near to, in lower case.

    >>> nearest_function("CONUT"), nearest_function("uper"), nearest_function("frobnicate")
    ('count', 'upper', None)
    """
    known, plain = names("rows", "groups"), name.lower()
    if plain in known or plain.startswith(_OWN):
        return None
    return next(iter(difflib.get_close_matches(plain, known, n=1, cutoff=CUTOFF)), None)
