"""Expressions of which PostgreSQL and DuckDB have the words in common, not the meaning."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce

from sqlglot import exp

from dpsql.dialect.columns import TYPE, type_of
from dpsql.dialect.types import INTEGERS, NUMBERS, TEXTS, Type, written
from dpsql.errors import NotSupportedError, Span, printable

Place = Callable[[exp.Expr], Span]
_REALS = ("float4", "float8")
_NEVER_NULL = (exp.Count, exp.RowNumber, exp.Rank, exp.DenseRank)
_PLACE = re.compile(r"%(?:(\d+)\$)?(.)", re.DOTALL)
_SPECIAL = re.compile(r"[.^$\[\]\\]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)


class PostgresMeaning:
    """Rewrites an expression whose parts were rewritten before, and whose type is noted.

    ``place`` says where one stands, for refusals.
    """

    def __init__(self, place: Place) -> None:
        self._place = place

    def __call__(self, node: exp.Expr) -> exp.Expr:
        """Return the expression that DuckDB is to read.

        Raises: NotSupportedError (E_FUNCTION, E_PREDICATE).
        """
        rule = _RULES.get(type(node))
        return node if rule is None else rule(self, node)

    def _refuse(self, node: exp.Expr, what: str, hint: str) -> NotSupportedError:
        return NotSupportedError("E_FUNCTION", what, hint=hint, span=self._place(node))

    # ---- numbers --------------------------------------------------------------------------------

    def _divided(self, node: exp.Expr) -> exp.Expr:
        sides = [type_of(node.this), type_of(node.expression)]
        if (
            all(each in INTEGERS or each == "unknown" for each in sides)
            and sides != ["unknown"] * 2
        ):
            return exp.IntDiv(this=node.this, expression=node.expression)
        if not any(each in NUMBERS and each not in INTEGERS for each in sides):
            if "interval" in sides:
                return node
            what = "the type of what is divided is not known, and integers are divided otherwise"
            raise self._refuse(node, what, "CAST(x AS double precision) / y")
        node.set("typed", False)
        return node

    def _rounded(self, node: exp.Expr) -> exp.Expr:
        """ROUND of a double takes halves to the even number, that of a NUMERIC away from zero."""
        is_even = node.args.get("decimals") is None and type_of(node.this) in _REALS
        if not is_even or node.find(exp.AggFunc, exp.AnonymousAggFunc, exp.Query):
            return node  # what has noise is half of nothing
        zero = exp.Literal.number(0)
        return exp.Anonymous(this="round_even", expressions=[node.this, zero])

    def _cast(self, node: exp.Expr) -> exp.Expr:
        assert isinstance(node, exp.Cast)
        to, of = written(node.to), type_of(node.this)
        if to is None:
            return node
        if to.endswith("[]") and isinstance(node.this, exp.Literal):
            return _noted(self._array(node.this, to), to)
        if of == to and not node.to.expressions:
            return _within(node.this)
        if to in INTEGERS and of == "numeric":
            node.set("this", exp.Round(this=node.this))
        elif to == "numeric" and not node.to.expressions:
            inner = node.this
            node = exp.cast(inner, "DOUBLE") if of in TEXTS else exp.paren(inner, copy=False)
        elif to in TEXTS and of is not None:
            text = self._text(node.this)
            if not node.to.expressions:
                return text
            length = exp.Literal.number(node.to.expressions[0].name)
            return exp.Left(this=_within(text), expression=length)
        elif to == "bpchar":
            raise self._refuse(node, "the type CHAR is not supported", "CAST(x AS text)")
        return node

    def _text(self, node: exp.Expr) -> exp.Expr:
        """An expression as text, as PostgreSQL writes its type."""
        of = type_of(node)
        if of in TEXTS:
            return node if of != "unknown" or isinstance(node, exp.Literal) else _as_text(node)
        if of in ("numeric", *_REALS) or of is None:
            if isinstance(node, exp.Literal):
                return exp.Literal.string(node.name)
            what = "the digits of a text of a number that is none of integers"
            raise self._refuse(node, f"{what} are not supported", "round(x)::bigint::text")
        return _as_text(node)

    # ---- texts ----------------------------------------------------------------------------------

    def _joined(self, node: exp.Expr) -> exp.Expr:
        sides = [type_of(node.this), type_of(node.expression)]
        if not any(str(each).endswith("[]") for each in sides):
            node.set("this", self._text(node.this))
            node.set("expression", self._text(node.expression))
        return node

    def _formatted(self, node: exp.Expr) -> exp.Expr:
        """FORMAT, of which DuckDB's function of that name has other marks."""
        pattern, given = node.this, list(node.expressions)
        hint = "format('%s of %s', a, b): a text with %s, %1$s and %%"
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise self._refuse(node, "FORMAT of this text is not supported", hint)
        parts: list[exp.Expr] = []
        end = place = 0
        for found in _PLACE.finditer(pattern.name):
            parts.append(exp.Literal.string(pattern.name[end : found.start()]))
            end = found.end()
            if found[2] == "%":
                parts.append(exp.Literal.string("%"))
                continue
            place = int(found[1]) if found[1] else place + 1
            if found[2] != "s" or not 0 < place <= len(given):
                raise self._refuse(node, "FORMAT of this text is not supported", hint)
            text = self._text(given[place - 1].copy())
            parts.append(exp.Coalesce(this=text, expressions=[exp.Literal.string("")]))
        parts.append(exp.Literal.string(pattern.name[end:]))
        kept = [each for each in parts if not isinstance(each, exp.Literal) or each.name]
        if not kept:
            return exp.Literal.string("")
        pipes = reduce(lambda a, b: exp.DPipe(this=a, expression=b, safe=True), kept)
        return exp.paren(pipes, copy=False)

    def _similar(self, node: exp.Expr) -> exp.Expr:
        """SIMILAR TO, of which DuckDB has the words and takes a regular expression."""
        pattern = node.expression
        if not isinstance(pattern, exp.Literal):
            raise self._refuse(node, "SIMILAR TO of this pattern is not supported", "a text")
        found = exp.Literal.string(similar_to_regex(pattern.name))
        return exp.Anonymous(this="REGEXP_FULL_MATCH", expressions=[node.this, found])

    def _like(self, node: exp.Expr) -> exp.Expr:
        """LIKE, in whose pattern a backslash escapes what follows."""
        pattern = node.expression
        is_escaped = isinstance(pattern, exp.Literal) and "\\" in pattern.name
        if not is_escaped or isinstance(node.parent, exp.Escape):
            return node
        return exp.Escape(this=node, expression=exp.Literal.string("\\"))

    def _unescaped(self, node: exp.Expr) -> exp.Expr:
        """A text with escapes, E'...'."""
        return _noted(exp.Literal.string(_ESCAPED.sub(_character, str(node.this))), "unknown")

    # ---- lists ----------------------------------------------------------------------------------

    def _array(self, node: exp.Literal, of: str) -> exp.Expr:
        """An array that is written as a text: '{1,2}'."""
        inner = re.fullmatch(r"\{(.*)\}", node.name.strip(), re.DOTALL)
        if inner is None or "{" in inner[1] or "\\" in inner[1]:
            raise self._refuse(
                node, f"{printable(node.name)} is no array of one dimension", "'{1,2}'"
            )
        parts = re.findall(r'\s*("[^"]*"|[^,"]+?)\s*(?:,|$)', inner[1])
        kind = of.removesuffix("[]")
        values = [_element(each, kind) for each in parts]
        return _noted(exp.Array(expressions=values), of)

    def _compared(self, node: exp.Expr) -> exp.Expr:
        """A comparison: with each value of a list by ANY and ALL, and of numbers with a text."""
        other = node.expression
        if isinstance(other, exp.Any | exp.All):
            return self._quantified(node, other)
        _settle([node.this, other], node)
        return node

    def _quantified(self, node: exp.Expr, other: exp.Expr) -> exp.Expr:
        listed = other.this
        while isinstance(listed, exp.Paren):
            listed = listed.this
        if isinstance(listed, exp.Query):
            return node
        if isinstance(listed, exp.Literal) and listed.is_string:
            listed = self._array(listed, f"{type_of(node.this) or 'text'}[]")
        if not isinstance(listed, exp.Array):
            hint = "= ANY (ARRAY[1, 2]), = ANY ('{1,2}'), or a parameter that is a list"
            raise self._refuse(node, "ANY and ALL of this list are not supported", hint)
        values = list(listed.expressions)
        for each in values:
            _settle([node.this, each], each)
        is_any = isinstance(other, exp.Any)
        if isinstance(node, exp.EQ if is_any else exp.NEQ) and values:
            found: exp.Expr = exp.In(this=node.this, expressions=values)
            return found if is_any else exp.Not(this=found)
        if not values:
            return exp.Boolean(this=not is_any)
        tests = [type(node)(this=node.this.copy(), expression=each) for each in values]
        combined = exp.or_(*tests, copy=False) if is_any else exp.and_(*tests, copy=False)
        return exp.paren(combined, copy=False)

    def _listed(self, node: exp.Expr) -> exp.Expr:
        for each in node.expressions:
            _settle([node.this, each], each)
        return node

    def _between(self, node: exp.Expr) -> exp.Expr:
        for name in ("low", "high"):
            _settle([node.this, node.args[name]], node)
        return node

    # ---- order and groups -----------------------------------------------------------------------

    def _ordered(self, node: exp.Expr) -> exp.Expr:
        """An item of ORDER BY: NULL is above all values, which matters where there may be any."""
        value = node.this
        while isinstance(value, exp.Window | exp.Filter | exp.Paren | exp.Alias):
            value = value.this
        within = node.find_ancestor(exp.WithinGroup, exp.Window, exp.Select)
        if isinstance(within, exp.WithinGroup) or isinstance(value, _NEVER_NULL):
            node.set("nulls_first", False)
        return node

    def _within_group(self, node: exp.Expr) -> exp.Expr:
        """A share of ordered values, as DuckDB calls the function."""
        called, ordered = node.this, node.expression.expressions
        names = {exp.PercentileCont: "quantile_cont", exp.PercentileDisc: "quantile_disc"}
        if len(ordered) != 1:
            return node
        of, down = ordered[0].this, ordered[0].args.get("desc")
        if isinstance(called, exp.Mode):
            return exp.Anonymous(this="mode", expressions=[of])
        if type(called) not in names:
            return node
        share = called.this
        if down:
            share = exp.Sub(this=exp.Literal.number(1), expression=_within(share))
            if isinstance(called.this, exp.Literal):
                share = exp.Literal.number(repr(round(1 - float(called.this.name), 12)))
        return exp.Anonymous(this=names[type(called)], expressions=[of, share])

    def _grouped_text(self, node: exp.Expr) -> exp.Expr:
        """STRING_AGG, with its order within."""
        of, separator = node.this, node.args.get("separator")
        order = of if isinstance(of, exp.Order) else None
        value = _noted((of.this if order is not None else of), type_of(of))
        if isinstance(value, exp.Distinct):
            return node
        given = [self._text(value), *([] if separator is None else [separator])]
        if order is not None:
            given[-1] = exp.Order(this=given[-1], expressions=order.expressions)
        return exp.Anonymous(this="string_agg", expressions=given)

    def _truth(self, node: exp.Expr) -> exp.Expr:
        name = "bool_and" if isinstance(node, exp.LogicalAnd) else "bool_or"
        return exp.Anonymous(this=name, expressions=[node.this])

    def _named(self, node: exp.Expr) -> exp.Expr:
        """Functions by names that the parser has no class for."""
        name, given = str(node.this).lower(), list(node.expressions)
        match name, given:
            case "date_part\x01", [exp.Literal() as unit, of]:
                part = exp.Var(this=unit.name.upper())
                return _noted(exp.Extract(this=part, expression=of), "float8")
            case "date_part\x01", _:
                raise self._refuse(node, "DATE_PART of this unit is not supported", "a text")
            case "div\x01", [of, by]:
                whole = all(type_of(each) in INTEGERS for each in given)
                kind = exp.IntDiv if whole else exp.Div
                found: exp.Expr = kind(this=_within(of), expression=_within(by))
                return _noted(exp.paren(found) if whole else exp.Trunc(this=found), "numeric")
            case "every", [of]:
                return exp.Anonymous(this="bool_and", expressions=[of])
        return node


def similar_to_regex(pattern: str) -> str:
    """A pattern of SIMILAR TO as a regular expression for the whole of a text.

    >>> similar_to_regex("a(b|c)_%"), similar_to_regex("a.b\\\\%")
    ('a(b|c).(?s:.)*', 'a\\\\.b%')
    """
    out, inside, escaped = [], False, False
    for each in pattern:
        if escaped:
            out.append(re.escape(each))
            escaped = False
        elif each == "\\":
            escaped = True
        elif inside:
            out.append(each)
            inside = each != "]"
        elif each == "[":
            out.append(each)
            inside = True
        else:
            known = {"%": "(?s:.)*", "_": "."}
            out.append(known.get(each, re.escape(each) if _SPECIAL.match(each) else each))
    return "".join(out)


def _settle(sides: list[exp.Expr], node: exp.Expr) -> None:
    """Make a number of a text that is compared with one: its type is that of the other side."""
    for one, other in (sides, sides[::-1]):
        text = other.name.strip() if isinstance(other, exp.Literal) else ""
        is_text = isinstance(other, exp.Literal) and other.is_string
        if is_text and type_of(one) in NUMBERS and re.fullmatch(r"-?\d+(\.\d+)?", text):
            number: exp.Expr = exp.Literal.number(text.removeprefix("-"))
            number = exp.Neg(this=number) if text.startswith("-") else number
            other.replace(_noted(number, type_of(one)))


def _element(text: str, kind: str) -> exp.Expr:
    """A value of an array that is written as a text."""
    if text.upper() == "NULL":
        return _noted(exp.null(), "unknown")
    bare = text[1:-1] if text.startswith('"') else text
    if kind in NUMBERS and re.fullmatch(r"-?\d+(\.\d+)?", bare):
        number: exp.Expr = exp.Literal.number(bare.removeprefix("-"))
        return _noted(exp.Neg(this=number) if bare.startswith("-") else number, kind)
    if kind == "bool":
        return _noted(exp.Boolean(this=bare.lower() in ("t", "true")), kind)
    return _noted(exp.Literal.string(bare), kind if kind not in NUMBERS else "unknown")


def _character(found: re.Match[str]) -> str:
    octal, hexadecimal, code, plain = found.groups()
    if octal:
        return chr(int(octal, 8))
    return chr(int(hexadecimal or code, 16)) if hexadecimal or code else _ESCAPES.get(plain, plain)


def _within(node: exp.Expr) -> exp.Expr:
    """An expression that may stand anywhere."""
    if isinstance(node, exp.Binary | exp.Unary | exp.Connector | exp.Predicate):
        return _noted(exp.paren(node, copy=False), type_of(node)) if not _is_closed(node) else node
    return node


def _is_closed(node: exp.Expr) -> bool:
    return isinstance(node, exp.Paren)


def _as_text(node: exp.Expr) -> exp.Expr:
    return _noted(exp.cast(node, "TEXT"), "text")


def _noted(node: exp.Expr, found: Type) -> exp.Expr:
    node.meta[TYPE] = found
    return node


_Rule = Callable[[PostgresMeaning, exp.Expr], exp.Expr]
_RULES: dict[type[exp.Expr], _Rule] = {
    exp.Div: PostgresMeaning._divided,
    exp.Round: PostgresMeaning._rounded,
    exp.Cast: PostgresMeaning._cast,
    exp.DPipe: PostgresMeaning._joined,
    exp.Format: PostgresMeaning._formatted,
    exp.SimilarTo: PostgresMeaning._similar,
    exp.Like: PostgresMeaning._like,
    exp.ILike: PostgresMeaning._like,
    exp.ByteString: PostgresMeaning._unescaped,
    exp.In: PostgresMeaning._listed,
    exp.Between: PostgresMeaning._between,
    exp.Ordered: PostgresMeaning._ordered,
    exp.WithinGroup: PostgresMeaning._within_group,
    exp.GroupConcat: PostgresMeaning._grouped_text,
    exp.LogicalAnd: PostgresMeaning._truth,
    exp.LogicalOr: PostgresMeaning._truth,
    exp.Anonymous: PostgresMeaning._named,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), PostgresMeaning._compared),
}
