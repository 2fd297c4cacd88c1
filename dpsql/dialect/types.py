"""Types as PostgreSQL calls them: of declared columns, of operators, and of functions.

Source: the PostgreSQL manual, chapters 9 (functions) and 10 (type conversion).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

Type = str | None
"""The name of a type, with ``[]`` for arrays; ``unknown`` for a text whose use says its type, and
None where nothing is known."""

DECLARED = {
    "integer": "int8",
    "number": "float8",
    "decimal": "numeric",
    "text": "text",
    "boolean": "bool",
    "date": "date",
    "timestamp": "timestamp",
    "time": "time",
}
"""The types of columns as a catalog writes them."""
INTEGERS = ("int2", "int4", "int8")
NUMBERS = (*INTEGERS, "numeric", "float4", "float8")
"""Numbers, each with those before it, which it takes in."""
_TIMES = ("date", "timestamp", "timestamptz")
TEXTS = ("text", "varchar", "bpchar", "unknown")
_KINDS = {
    **dict.fromkeys(INTEGERS, "integer"),
    **dict.fromkeys(("numeric", "float4", "float8"), "number"),
    **dict.fromkeys(("text", "varchar", "bpchar", "unknown", "interval"), "text"),
    "bool": "boolean",
    "date": "date",
    "time": "time",
    **dict.fromkeys(("timestamp", "timestamptz"), "timestamp"),
}


def kind_of(found: Type) -> str:
    """The name that results have for a type.

    >>> kind_of("int4"), kind_of("int8[]"), kind_of(None)
    ('integer', 'list', 'number')
    """
    return (
        "list" if found is not None and found.endswith("[]") else _KINDS.get(found or "", "number")
    )


def common(found: Iterable[Type]) -> Type:
    """The type of values of several types, as in CASE and UNION.

    >>> common(["int4", "numeric", "unknown"]), common(["unknown"]), common(["int4", None])
    ('numeric', 'unknown', None)
    """
    known = list(dict.fromkeys(each for each in found if each != "unknown"))
    if len(known) < 2:
        return known[0] if known else "unknown"
    for family in (NUMBERS, _TIMES, TEXTS):
        if all(each in family for each in known):
            return family[max(family.index(str(each)) for each in known)]
    return "text" if all(each in TEXTS for each in known) else None


def literal(node: exp.Literal) -> Type:
    """The type of a constant."""
    if node.is_string:
        return "unknown"
    text = node.name.replace("_", "")
    if not text.isdigit():
        return "numeric"
    return "int4" if int(text) < 2**31 else "int8" if int(text) < 2**63 else "numeric"


def written(to: exp.DataType) -> Type:
    """The type that a cast is to."""
    if to.this == exp.DType.ARRAY and to.expressions:
        inner = written(to.expressions[0])
        return None if inner is None else f"{inner}[]"
    if to.this == exp.DType.INTERVAL or isinstance(to.this, exp.Interval):
        return "interval"
    return _WRITTEN.get(to.this)


_WRITTEN = {
    exp.DType.SMALLINT: "int2",
    exp.DType.INT: "int4",
    exp.DType.BIGINT: "int8",
    exp.DType.DECIMAL: "numeric",
    exp.DType.FLOAT: "float4",
    exp.DType.DOUBLE: "float8",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "varchar",
    exp.DType.CHAR: "bpchar",
    exp.DType.BOOLEAN: "bool",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamptz",
    exp.DType.TIME: "time",
}


def arithmetic(node: exp.Expr, left: Type, right: Type) -> Type:
    """The type of a sum, a difference, a product, a quotient or a remainder.

    Args:
        node: decides where an operator has types of its own: days apart are no date.
        left, right: types of the operands; None or "unknown" where they are not known.
    """
    sides = {left, right}
    if sides <= {*NUMBERS, "unknown"}:
        return common((left, right)) if sides != {"unknown"} else None
    if isinstance(node, exp.Sub) and left == right and left in _TIMES:
        return "int4" if left == "date" else "interval"
    if "interval" in sides:
        (other,) = sides - {"interval"} or {"interval"}
        moved = {"date": "timestamp"}.get(str(other), other)
        return "interval" if other in (*NUMBERS, "unknown") else moved
    if "date" in sides and sides <= {"date", *INTEGERS}:
        return "date"
    return None


_Rule = Type | Callable[[Sequence[Type]], Type]


def _same(given: Sequence[Type]) -> Type:
    return given[0] if given else None


def _real(given: Sequence[Type]) -> Type:
    """Functions of NUMERIC and of DOUBLE PRECISION: integers are taken for the second."""
    if None in given or not given:
        return None
    return "numeric" if "numeric" in given and "float8" not in given else "float8"


def _sum(given: Sequence[Type]) -> Type:
    of = _same(given)
    return {"int2": "int8", "int4": "int8", "int8": "numeric"}.get(str(of), of)


def _mean(given: Sequence[Type]) -> Type:
    of = _same(given)
    return {"float4": "float8", "float8": "float8", "interval": "interval"}.get(
        str(of), None if of is None else "numeric"
    )


def _truncated(given: Sequence[Type]) -> Type:
    of = _same(given)
    return "timestamptz" if of in ("date", "timestamptz") else "timestamp" if of else None


def _rounded(given: Sequence[Type]) -> Type:
    return "numeric" if len(given) == 2 and given[0] in (*INTEGERS, "numeric") else _real(given[:1])


def _array(given: Sequence[Type]) -> Type:
    of = _same(given)
    return None if of is None else f"{'text' if of == 'unknown' else of}[]"


FUNCTIONS: dict[type[exp.Expr], _Rule] = {
    **dict.fromkeys((exp.Count, exp.CountIf, exp.RowNumber, exp.Rank, exp.DenseRank), "int8"),
    **dict.fromkeys((exp.ApproxDistinct,), "int8"),
    **dict.fromkeys((exp.Min, exp.Max, exp.Abs, exp.AnyValue, exp.Mode), _same),
    **dict.fromkeys((exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue), _same),
    **dict.fromkeys((exp.PercentRank, exp.CumeDist, exp.Corr, exp.CovarPop), "float8"),
    **dict.fromkeys((exp.CovarSamp, exp.PercentileCont, exp.Median), "float8"),
    **dict.fromkeys((exp.Quantile, exp.ApproxQuantile), "float8"),
    **dict.fromkeys((exp.Ceil, exp.Floor, exp.Sqrt, exp.Exp, exp.Ln, exp.Log, exp.Pow), _real),
    **dict.fromkeys((exp.Sign,), _real),
    **dict.fromkeys((exp.Round, exp.Trunc), _rounded),
    **dict.fromkeys((exp.Stddev, exp.StddevPop, exp.StddevSamp), _mean),
    **dict.fromkeys((exp.Variance, exp.VariancePop), _mean),
    **dict.fromkeys((exp.Acos, exp.Acosh, exp.Asin, exp.Asinh, exp.Atan, exp.Atan2), "float8"),
    **dict.fromkeys((exp.Atanh, exp.Cbrt, exp.Cos, exp.Cosh, exp.Cot, exp.Degrees), "float8"),
    **dict.fromkeys((exp.Pi, exp.Radians, exp.Sin, exp.Sinh, exp.Tan, exp.Tanh), "float8"),
    **dict.fromkeys((exp.RegrSlope, exp.RegrIntercept, exp.RegrR2, exp.RegrAvgx), "float8"),
    **dict.fromkeys((exp.RegrAvgy, exp.RegrSxx, exp.RegrSyy, exp.RegrSxy), "float8"),
    exp.RegrCount: "int8",
    exp.Factorial: "numeric",
    exp.MakeInterval: "interval",
    exp.PercentileDisc: _same,
    exp.Sum: _sum,
    exp.Avg: _mean,
    exp.Ntile: "int4",
    exp.Grouping: "int4",
    exp.ArrayAgg: _array,
    **dict.fromkeys((exp.Length, exp.StrPosition, exp.WidthBucket, exp.Unicode), "int4"),
    **dict.fromkeys((exp.Ascii, exp.BitLength), "int4"),
    exp.Extract: "numeric",
    **dict.fromkeys((exp.Lower, exp.Upper, exp.Substring, exp.Left, exp.Right, exp.Trim), "text"),
    **dict.fromkeys((exp.Replace, exp.SplitPart, exp.Concat, exp.ConcatWs, exp.Pad), "text"),
    **dict.fromkeys((exp.Repeat, exp.Reverse, exp.TimeToStr, exp.GroupConcat, exp.MD5), "text"),
    **dict.fromkeys((exp.RegexpReplace, exp.Initcap, exp.Format, exp.Chr, exp.Overlay), "text"),
    exp.Translate: "text",
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr, exp.StartsWith), "bool"),
    **dict.fromkeys((exp.CurrentDate, exp.Date, exp.DateFromParts), "date"),
    exp.CurrentTimestamp: "timestamptz",
    **dict.fromkeys((exp.TimestampTrunc, exp.DateTrunc), _truncated),
    exp.DPipe: "text",
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor), common),
    exp.Interval: "interval",
    exp.Boolean: "bool",
    exp.Null: "unknown",
}
"""Result types of functions and constants, each alone or by the types of its arguments."""
NAMED: dict[str, _Rule] = {
    "make_date": "date",
    "every": "bool",
    "isfinite": "bool",
    "octet_length": "int4",
    "bit_count": "int8",
    "age": "interval",
}
"""Result types of functions that the parser has no class for, by name."""


def result(node: exp.Expr, given: Sequence[Type]) -> Type:
    """The type of a function of arguments of some types."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        rule = NAMED.get(str(node.this).lower())
    else:
        rule = FUNCTIONS.get(type(node))
    return rule(given) if callable(rule) else rule
