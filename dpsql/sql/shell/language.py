"""Expressions that may aggregate and frame tables of the outer shell, deterministic and total.

Whatever is not listed here is refused by name; nothing is ever dropped silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from sqlglot import ErrorLevel, exp

from dpsql.errors import Error, NotSupportedError, ProgrammingError, Span, printable
from dpsql.logical.functions import (
    MODIFIERS,
    RANDOM,
    TYPES,
    Function,
    find,
    has,
    is_aggregate,
    is_function,
    nearest_function,
)
from dpsql.sql.text.lexemes import Fragment

WORKS = (
    "COUNT, SUM, AVG, MIN, MAX, MEDIAN, MODE, QUANTILE_CONT, VARIANCE, STDDEV, CORR, REGR_SLOPE, "
    "BOOL_AND, BOOL_OR, ARG_MAX, ARG_MIN, FIRST, LAST, LIST, STRING_AGG"
)
MAX_TITLE = 40
"""Characters of a part of a statement that a message quotes."""
EACH_COLUMN = "each column by its name: AVG(a), AVG(b)"
"""The remedy for COLUMNS."""
KEPT_SIDES = (
    "private LEFT JOIN public has all private rows, public LEFT JOIN private all groups of public "
    "rows: a statement for each"
)
"""The remedies for joins of which rows of both sides stay."""
KEPT_ROWS = (
    "public rows that stay are one table or sub-query: FROM (SELECT ...) AS p LEFT JOIN t ON .."
)
"""The remedy for a LEFT JOIN of private rows to several public tables."""
_WITHOUT = {"E_SAMPLE": "leave it out: all rows are counted, with noise"}
"""Remedies that work wherever a clause is refused, by code."""
FIELD = "DP_REPORT(COUNT(*)).result works"
Locate = Callable[[exp.Expr], Span]
"""Says where in the text a part of a statement stands."""


def check_scalar(tree: exp.Expr, locate: Locate) -> None:
    """Refuse any node, argument, function or type of ``tree`` that is not listed.

    Raises: NotSupportedError (E_SUBQUERY, E_WINDOW, E_AGGREGATE, E_FUNCTION) or ProgrammingError
    (E_NONDETERMINISTIC).
    """
    for node in tree.walk():
        check_node(node, locate)


def check_answer(node: exp.Expr, locate: Locate) -> None:
    """Refuse one node over answers, of which there may be lists, without its children."""
    if not has(node, "lists"):
        check_node(node, locate)


def check_node(node: exp.Expr, locate: Locate) -> None:
    """Refuse one node, its arguments and its type, without looking at its children."""
    if isinstance(node, exp.Anonymous):
        if not has(node, "rows"):
            raise _refuse_function(node, str(node.this).lower(), locate)
        return
    known = find(node)
    if known is None and isinstance(node, exp.Dot):
        refuse(node, "E_FUNCTION", "a field of what is no report", FIELD, locate)
    if known is None or "rows" not in known.facts:
        raise _refuse_node(node, locate)
    if isinstance(node, exp.DataType) and node.this not in TYPES:
        raise _refuse(node, f"the type {node.sql('duckdb')}", locate)
    for key in _beyond(node, known):
        if isinstance(value := node.args[key], exp.Query):
            raise _refuse_node(value, locate)
        raise _refuse(node, f"{_title(node, locate)} with {key.upper()}", locate)


def _beyond(node: exp.Expr, known: Function) -> Iterator[str]:
    """The arguments that are set and not those that a function may have."""
    for key, value in node.args.items():
        if key not in known.arguments and value is not None and value is not False and value != []:
            yield key


def check_calls(tree: exp.Expr, locate: Locate) -> None:
    """Refuse functions without the arguments that they need, and those that cannot be written.

    The parser knows functions of many databases, of any arguments: whoever shows one that is not
    listed here, in a name or in a refusal, would write it as SQL. Raises: NotSupportedError.
    """
    for node in tree.find_all(exp.Func):
        if isinstance(node, exp.Anonymous) or (has(node, "rows") and node.this is not None):
            continue
        if node.error_messages() or not _is_writable(node):
            name = written_name(node, locate)
            raise _refuse(node, f"{name}() of these arguments", locate)


def check_nested(tree: exp.Expr, locate: Locate) -> None:
    """Refuse an aggregate within another, which is of rows; that of a window is of groups.

    Raises: ProgrammingError (E_AGGREGATE).
    """
    for node in filter(is_aggregate, tree.find_all(exp.AggFunc, exp.Anonymous)):
        outer = node.parent
        while outer is not None and not is_aggregate(outer):
            outer = None if isinstance(outer, exp.Query | exp.Window) else outer.parent
        around = None if outer is None else outer.parent
        while isinstance(around, MODIFIERS):
            around = around.parent
        if outer is not None and not isinstance(around, exp.Window):
            own, name = (written_name(each, locate) for each in (node, outer))
            raise ProgrammingError(
                "E_AGGREGATE",
                f"{own}() stands within {name}(), an aggregate of rows, not of aggregates",
                hint=f"{own}() AS x in a sub-query in FROM, by keys of its own, and {name}() of x "
                "outside",
                span=locate(node),
            )


def check_selected(tree: exp.Expr, locate: Locate) -> None:
    """Refuse a SELECT of nothing; PostgreSQL has it in EXISTS, which is about rows alone.

    Raises: ProgrammingError (E_PARSE).
    """
    for node in tree.find_all(exp.Select):
        exists = isinstance(node.parent, exp.Exists) and node.args.get("from_")
        if not node.expressions and not exists:
            hint = "SELECT COUNT(*) FROM ..."
            raise ProgrammingError("E_PARSE", "nothing is selected", hint=hint, span=locate(node))


def check_inverted(tree: exp.Expr, locate: Locate) -> None:
    """Refuse ``~`` beside operators: ``~a - b`` is ``~(a - b)`` to DuckDB, and not to the parser.

    Raises: NotSupportedError (E_FUNCTION).
    """
    for node in tree.find_all(exp.BitwiseNot):
        around = node.parent
        is_called = isinstance(around, exp.Func) and not isinstance(around, exp.Pow)
        is_compared = isinstance(around, exp.Predicate | exp.Connector)
        if isinstance(around, exp.Binary | exp.Neg) and not (is_called or is_compared):
            refuse(around, "E_FUNCTION", "~ beside other operators", "write (~x)", locate)


def _is_writable(node: exp.Expr) -> bool:
    if has(node, "rows", "groups", "windows"):
        return True
    # aggregates are refused by name, whatever DuckDB has no word for
    level = ErrorLevel.IGNORE if isinstance(node, exp.AggFunc) else ErrorLevel.RAISE
    try:
        node.sql("duckdb", comments=False, unsupported_level=level)
    except Exception:  # what a generator of SQL makes of arguments that it did not foresee
        return False
    return True


def check_window(node: exp.Expr, locate: Locate) -> None:
    """Refuse one node in or of a window over noisy cells, unless it is listed."""
    known = find(node)
    if known is None or "windows" not in known.facts:
        check_node(node, locate)
        return
    for key in _beyond(node, known):
        raise _refuse(node, f"{_title(node, locate)} with {key.upper()}", locate, "E_WINDOW")


def over_parts(node: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """A copy of a node, with the place that it has in the text, whose parts are changed."""
    args: dict[str, Any] = {}
    for key, value in node.args.items():
        if isinstance(value, exp.Expr):
            args[key] = change(value)
        elif isinstance(value, list):
            args[key] = [change(each) if isinstance(each, exp.Expr) else each for each in value]
        else:
            args[key] = value
    copy = type(node)(**args)
    copy.meta.update(node.meta)
    return copy


def one_branch(node: exp.Expr) -> tuple[exp.Expr, exp.Expr, exp.Expr | None] | None:
    """The value, the test and the other value of a CASE or IF that has one; None for all else.

    >>> from sqlglot import parse_one
    >>> [str(part) for part in one_branch(parse_one("CASE WHEN a > 1 THEN (b) ELSE 0 END"))]
    ['b', 'a > 1', '0']
    """
    branch = node.unnest()
    other = branch.args.get("false")
    if isinstance(branch, exp.Case) and branch.this is None and len(branch.args["ifs"]) == 1:
        other, branch = branch.args.get("default"), branch.args["ifs"][0]
    if not isinstance(branch, exp.If):
        return None
    return branch.args["true"].unnest(), branch.this, other


def split_test(value: exp.Expr) -> tuple[exp.Expr, list[exp.Expr]]:
    """The value of an aggregate, and the tests of the CASEs around it that are NULL elsewhere.

    >>> from sqlglot import parse_one
    >>> split_test(parse_one("CASE WHEN a > 1 THEN b END"))[0].sql()
    'b'
    """
    value, tests = value.unnest(), list[exp.Expr]()
    while (found := one_branch(value)) is not None and isinstance(found[2], exp.Null | None):
        value, tests = found[0], [*tests, found[1]]
    return value, tests


def refuse(value: object, code: str, what: str, hint: str | None, locate: Locate) -> NoReturn:
    """Refuse a clause, or a part of one, by name. Raises: NotSupportedError."""
    node = value[0] if isinstance(value, list) else value
    span = locate(node) if isinstance(node, exp.Expr) else None
    hint = _WITHOUT.get(code, hint)
    raise NotSupportedError(code, f"{what} is not supported", hint=hint, span=span)


def written_name(node: exp.Expr, locate: Locate) -> str:
    """The name of a function as the user wrote it; the parser may know it by another."""
    span = locate(node)
    here = re.match(r"(\w+)\s*\(", span.text[span.start :])
    before = re.search(r"(?i)(\w+)\s*\(\s*(distinct\s+)?$", span.text[: span.start])
    known = node.sql_name() if isinstance(node, exp.Func) else str(node.key)
    inner = {name for f in node.find_all(exp.Func) if f is not node for name in f.sql_names()}
    inner.add("COLUMNS")  # a column that it stands for is where it is written
    is_inner = here is not None and here.group(1).upper() in inner - {known.upper()}
    found = before if is_inner else here or before
    return (found.group(1) if found else known).upper()


def _title(node: exp.Expr, locate: Locate) -> str:
    if isinstance(node, exp.Func) and not isinstance(node, exp.Binary):
        return f"{written_name(node, locate)}()"
    if any("start" not in each.this.meta for each in node.find_all(exp.Column)):
        return str(node.key).upper()  # of what stands for something that was written otherwise
    text = node.sql("duckdb", comments=False)
    return text if len(text) <= MAX_TITLE else f"{text[: MAX_TITLE - 3]}..."


_WORKS = (
    "comparisons, IN, BETWEEN, LIKE, CASE, arithmetic and the usual text, number and date "
    "functions work"
)
_LARGEST, _SMALLEST = (f"compare with (SELECT {each}(x) FROM ...)" for each in ("MAX", "MIN"))
_QUANTIFIED: dict[bool, dict[type[object], str]] = {
    True: {
        **dict.fromkeys((exp.GT, exp.GTE), _LARGEST),
        **dict.fromkeys((exp.LT, exp.LTE), _SMALLEST),
        exp.NEQ: "NOT IN (SELECT ...) works where <> ALL is meant",
    },
    False: {
        **dict.fromkeys((exp.GT, exp.GTE), _SMALLEST),
        **dict.fromkeys((exp.LT, exp.LTE), _LARGEST),
        exp.EQ: "IN (SELECT ...) works where = ANY is meant",
    },
}
"""Remedies for ALL, and for ANY, after a comparison."""


def quantified(node: exp.Expr) -> str | None:
    """The comparison that means the same as one with ALL or ANY of a sub-query, if there is one."""
    called = str(node.this).lower() if isinstance(node, exp.Anonymous) else str(node.key)
    if called not in ("all", "any", "some") or node.find(exp.Query, exp.Values) is None:
        return None
    return _QUANTIFIED[called == "all"].get(type(node.parent))


def _refuse(node: exp.Expr, what: str, locate: Locate, code: str = "E_FUNCTION") -> Error:
    return NotSupportedError(
        code,
        f"{printable(what)} is not supported here",
        hint=quantified(node) or _WORKS,
        span=locate(node),
    )


def _refuse_function(node: exp.Expr, name: str, locate: Locate) -> Error:
    if name in RANDOM:
        return _refuse_random(node, name, locate)
    what = f"{name}() of these arguments" if is_function(name) else f"the function {name}()"
    error = _refuse(node, what, locate)
    if (near := nearest_function(name)) is not None:
        error.hint = f"did you mean {near}()?"
    return error


def _refuse_random(node: exp.Expr, name: str, locate: Locate) -> Error:
    return ProgrammingError(
        "E_NONDETERMINISTIC",
        f"{name}() is not deterministic",
        hint="write the value itself, for example DATE '2024-01-01'; CURRENT_DATE works",
        span=locate(node),
    )


def _refuse_node(node: exp.Expr, locate: Locate) -> Error:
    name = node.sql_name().lower() if isinstance(node, exp.Func) else str(node.key)
    if isinstance(node, exp.Placeholder | exp.Parameter):
        what, hint = "there is a parameter without a value", "execute(sql, {'name': value})"
        return ProgrammingError("E_PARSE", what, hint=hint, span=locate(node))
    if name in RANDOM or node.key in RANDOM | {"currentdate", "currenttimestamp", "currenttime"}:
        return _refuse_random(node, name, locate)
    if isinstance(node, exp.Query | exp.Subquery | exp.Exists | exp.Any):
        return NotSupportedError(
            "E_SUBQUERY",
            "a sub-query is not supported here",
            hint=quantified(node) or "ask for its value in a statement of its own",
            span=locate(node),
        )
    if isinstance(node, exp.Columns):
        return NotSupportedError(
            "E_FUNCTION",
            "COLUMNS() is not supported here",
            hint=EACH_COLUMN,
            span=locate(node),
        )
    if isinstance(node, exp.Star):
        hint = "columns by their names: SELECT a, b, COUNT(*) ... GROUP BY a, b"
        return NotSupportedError(
            "E_FUNCTION", "* is not supported here", hint=hint, span=locate(node)
        )
    if isinstance(node, exp.Tuple):
        return NotSupportedError(
            "E_PREDICATE",
            "this list of values is not supported here",
            hint="(a, b) = (1, 2) and (a, b) IN ((1, 2), (3, 4)) work: lists of one length",
            span=locate(node),
        )
    if isinstance(node, exp.Window):
        return NotSupportedError(
            "E_WINDOW", "window functions are not supported here", span=locate(node)
        )
    if isinstance(node, exp.AggFunc | exp.Filter):
        return NotSupportedError(
            "E_AGGREGATE",
            f"the aggregate {printable(_title(node, locate))} is not supported here",
            hint="WHERE, ON and GROUP BY are about rows; HAVING COUNT(*) > 10 is about groups",
            span=locate(node),
        )
    return _refuse(node, _title(node, locate), locate)


def check_aggregate(node: exp.Expr, locate: Locate) -> None:
    """Refuse an aggregate, or an argument of it, that is not listed.

    Raises: NotSupportedError (E_AGGREGATE).
    """
    known = find(node) if has(node, "groups") else None
    extra = known is None or any(v and k not in known.arguments for k, v in node.args.items())
    place = node.args.get("expression")
    if place is not None and not has(node, "paired") and not _is_share(place):
        extra = True
    if not all(isinstance(node.args.get(k), exp.Literal | None) for k in ("separator", "count")):
        extra = True
    if isinstance(node, exp.AnonymousAggFunc) and len(node.expressions) != 1:
        extra = True
    if not extra and node.this is not None:
        return
    raise NotSupportedError(
        "E_AGGREGATE",
        f"the aggregate {written_name(node, locate)}() is not supported over aggregated results",
        hint=f"{WORKS} work",
        span=locate(node),
    )


def check_frame(node: exp.Window, locate: Locate) -> None:
    """Refuse a window whose frame, or whose NTILE, is not given by whole numbers or an INTERVAL.

    Raises: NotSupportedError (E_WINDOW).
    """
    spec = node.args.get("spec")
    values = [] if spec is None else [spec.args.get("start"), spec.args.get("end")]
    parts = [value for value in values if isinstance(value, exp.Expr)]
    if isinstance(node.this, exp.Ntile):
        parts.append(node.this.this)
    for part in parts:
        if is_span(part, spec):
            continue
        if not isinstance(part, exp.Literal) or not part.name.isdigit() or part.name == "0":
            raise NotSupportedError(
                "E_WINDOW",
                "a window needs whole numbers above 0 here",
                hint="ROWS BETWEEN 3 PRECEDING AND CURRENT ROW, NTILE(4)",
                span=locate(node),
            )


def is_span(part: exp.Expr, spec: exp.Expr | None) -> bool:
    """True if an end of a frame of a window is an INTERVAL that is written out, in RANGE."""
    if spec is None or str(spec.args.get("kind")).upper() != "RANGE":
        return False
    return isinstance(part, exp.Interval) and isinstance(part.this, exp.Literal)


def _is_share(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and 0 <= float(node.name) <= 1


def locate(node: exp.Expr, fragment: Fragment) -> Span:
    """The span of text that ``node`` was parsed from, as well as the parser remembers it."""
    metas = _places([node])
    while not metas and node.parent is not None:
        beside = [each for each in node.parent.iter_expressions() if each is not node]
        node = node.parent
        metas = [*([node.meta] if "start" in node.meta else []), *_places(beside)]
    if not metas:
        return fragment.span(0, 1)
    start = min(meta["start"] for meta in metas)
    return fragment.span(start, max(meta["end"] for meta in metas) + 1)


def _places(trees: Iterable[exp.Expr]) -> list[dict[str, Any]]:
    return [part.meta for tree in trees for part in tree.walk() if "start" in part.meta]
