"""What may aggregate and frame tables of the outer shell; all of it deterministic and total."""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.sql.allowed import Locate, written_name

_ONE = {"this"}
_TWO = {"this", "expression"}

_AGGREGATES: dict[type[exp.Expr], set[str]] = {
    exp.Count: {"this", "big_int"},
    exp.CountIf: _ONE,
    exp.Sum: _ONE,
    exp.Avg: _ONE,
    exp.Min: _ONE,
    exp.Max: _ONE,
    exp.Median: _ONE,
    exp.PercentileCont: _TWO,
    exp.PercentileDisc: _TWO,
    exp.Variance: _ONE,
    exp.VariancePop: _ONE,
    exp.Stddev: _ONE,
    exp.StddevPop: _ONE,
    exp.StddevSamp: _ONE,
    exp.LogicalAnd: _ONE,
    exp.LogicalOr: _ONE,
    exp.AnyValue: _ONE,
}
_WORKS = "COUNT, SUM, AVG, MIN, MAX, MEDIAN, QUANTILE_CONT, VARIANCE, STDDEV, BOOL_AND, BOOL_OR"


def check_aggregate(node: exp.Expr, locate: Locate) -> None:
    """Refuse an aggregate, or an argument of it, that is not listed.

    Raises: NotSupportedError (E_AGGREGATE).
    """
    allowed = _AGGREGATES.get(type(node), set())
    extra = [k for k, v in node.args.items() if v and k not in allowed]
    place = node.args.get("expression")
    if place is not None and not _is_share(place):
        extra.append("expression")
    if allowed and not extra and node.this is not None:
        return
    raise NotSupportedError(
        "E_AGGREGATE",
        f"the aggregate {written_name(node, locate)}() is not supported over aggregated results",
        hint=f"{_WORKS} work",
        span=locate(node),
    )


def check_frame(node: exp.Window, locate: Locate) -> None:
    """Refuse a window whose frame, or whose NTILE, is not given by whole numbers.

    Raises: NotSupportedError (E_WINDOW).
    """
    spec = node.args.get("spec")
    values = [] if spec is None else [spec.args.get("start"), spec.args.get("end")]
    parts = [value for value in values if isinstance(value, exp.Expr)]
    if isinstance(node.this, exp.Ntile):
        parts.append(node.this.this)
    for part in parts:
        if not isinstance(part, exp.Literal) or not part.name.isdigit() or part.name == "0":
            raise NotSupportedError(
                "E_WINDOW",
                "a window needs whole numbers above 0 here",
                hint="ROWS BETWEEN 3 PRECEDING AND CURRENT ROW, NTILE(4)",
                span=locate(node),
            )


def _is_share(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and 0 <= float(node.name) <= 1
