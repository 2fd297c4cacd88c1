"""Lists in expressions: several quantiles of one call, membership in a list, places of a list."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.sql.rewrites.tree_parts import NodeLimit, size_of

MAX_QUANTILES = 100
"""Most quantiles of one call."""


def write_out_lists(tree: exp.Expr, room: NodeLimit) -> None:
    """Write out quantiles at several places, ``= ANY`` and ``IN UNNEST`` of lists, in place.

    Raises: ProgrammingError (E_TOO_COMPLEX).

    >>> from sqlglot import parse_one
    >>> sql = "SELECT QUANTILE_DISC(a, [0.2, 0.4])[2] FROM t WHERE a = ANY([1])"
    >>> tree = parse_one(sql, "duckdb")
    >>> write_out_lists(tree, NodeLimit(20))
    >>> tree.sql("duckdb")
    'SELECT QUANTILE_DISC(a, 0.4) AS "quantile_disc(a, [0.2, 0.4])[2]" FROM t WHERE a IN (1)'
    """
    for node in reversed(list(tree.walk(bfs=False))):
        places = _places(node)
        if places is not None and not _is_within_places(node):
            _spread(node, places, room)
        elif isinstance(node, exp.EQ | exp.ArrayContains) or node.args.get("unnest") is not None:
            _membership(node, room)


def constants(node: object) -> list[exp.Expr] | None:
    """The elements of a list of constants; None for all else."""
    listed = node.unnest() if isinstance(node, exp.Expr) else None
    if not isinstance(listed, exp.Array) or listed.find(exp.Column) is not None:
        return None
    return list(listed.expressions)


def _places(node: exp.Expr) -> list[exp.Expr] | None:
    """The places of the quantiles that a call asks for together; None for all else."""
    if isinstance(node, exp.ApproxQuantiles):
        parts = node.expression
        count = int(parts.name) if isinstance(parts, exp.Literal) and parts.name.isdigit() else 0
        if not 0 < count <= MAX_QUANTILES:
            return None
        return [exp.Literal.number(repr(k / count)) for k in range(count + 1)]
    if isinstance(node, exp.WithinGroup):
        inner = node.this
        listed = inner.this if isinstance(inner, exp.PercentileCont | exp.PercentileDisc) else None
    elif isinstance(node, exp.PercentileCont | exp.PercentileDisc | exp.Quantile):
        listed = node.args.get("quantile") or node.expression
    else:
        return None
    found = constants(listed)
    return found if found and len(found) <= MAX_QUANTILES else None


def _is_within_places(node: exp.Expr) -> bool:
    """True of a call within another of its SELECT, which is refused as it stands."""
    above = node.parent
    while above is not None and not isinstance(above, exp.Query):
        if isinstance(above, _OF_PLACES) and _places(above) is not None and above.this is not node:
            return True
        above = above.parent
    return False


_OF_PLACES = (
    exp.ApproxQuantiles,
    exp.WithinGroup,
    exp.PercentileCont,
    exp.PercentileDisc,
    exp.Quantile,
)


def rank_parts(node: exp.Expr) -> tuple[str, exp.Expr, exp.Expr, bool] | None:
    """The kind of a quantile, its column, its place and whether it counts from above.

    None where it is none that is known.
    """
    half = exp.Literal.number("0.5")
    if isinstance(node, exp.WithinGroup):
        order, inner = node.expression.expressions, node.this
        kind = {"percentilecont": "cont", "percentiledisc": "disc", "mode": "mode"}.get(inner.key)
        if kind is None or len(order) != 1:
            return None
        place = half if kind == "mode" else inner.this
        return kind, order[0].this, place, bool(order[0].args.get("desc"))
    if isinstance(node, exp.Mode | exp.Median):
        kind = "mode" if isinstance(node, exp.Mode) else "cont"
        return None if node.this is None else (kind, node.this, half, False)
    place = node.args.get("quantile") or node.expression
    kind = "cont" if isinstance(node, exp.PercentileCont) else "disc"
    return None if place is None or node.this is None else (kind, node.this, place, False)


def _spread(node: exp.Expr, places: Sequence[exp.Expr], room: NodeLimit) -> None:
    """Write a call as the list of its quantiles, or as the one of them that is asked for."""
    around = node.parent if isinstance(node.parent, exp.Filter) else node
    assert around is not None
    room.take(len(places) * size_of(around))
    each = [_at(around, place) for place in places]
    outer = around.parent
    if isinstance(outer, exp.Bracket) and around.arg_key == "this":
        place = _index(outer)
        if place is not None:
            inside = -len(each) <= place < len(each)
            _replace(outer, each[place] if inside else exp.null())
            return
    known = exp.Not(this=exp.Is(this=each[0].copy(), expression=exp.null()))
    listed = exp.Array(expressions=each)
    _replace(around, exp.paren(exp.Case(ifs=[exp.If(this=known, true=listed)]), copy=False))


def _at(around: exp.Expr, place: exp.Expr) -> exp.Expr:
    """A call, with its FILTER, for one place."""
    around = around.copy()
    node = around.this if isinstance(around, exp.Filter) else around
    if isinstance(node, exp.WithinGroup):
        node.this.set("this", place.copy())
    elif isinstance(node, exp.ApproxQuantiles):
        one = exp.PercentileDisc(this=node.this, expression=place.copy())
        if node is around:
            return one
        node.replace(one)
    else:
        node.set("quantile" if "quantile" in node.args else "expression", place.copy())
    return around


def _index(node: exp.Bracket) -> int | None:
    """The place in brackets, from 0, or from the end where it is negative."""
    place = node.expressions[0] if len(node.expressions) == 1 else None
    if isinstance(place, exp.Neg) and place.this.name.isdigit():
        return 1 - int(place.this.name)
    return int(place.name) if isinstance(place, exp.Literal) and place.name.isdigit() else None


def _membership(node: exp.Expr, room: NodeLimit) -> None:
    """``x = ANY(list)``, ``x IN UNNEST(list)`` and ``list_contains(list, x)`` as IN."""
    listed: list[exp.Expr] | None = None
    one = node.this
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
        listed = constants(node.expression.this)
    elif isinstance(node, exp.In):
        unnested = node.args["unnest"].expressions
        listed = constants(unnested[0]) if len(unnested) == 1 else None
    elif isinstance(node, exp.ArrayContains):
        listed, one = constants(node.this), node.expression
    if not listed:
        return
    found: exp.Expr | None = None
    contains = isinstance(node, exp.ArrayContains)
    if contains:
        # beside a NULL, IN of another value is NULL, while a list contains it or not
        listed = [each for each in listed if not isinstance(each.unnest(), exp.Null)]
    if listed:
        found = exp.In(this=one.copy(), expressions=[each.copy() for each in listed])
    if found is None or (contains and not all(map(_is_known, listed))):
        room.take(size_of(one))
        absent = exp.Nullif(
            this=exp.paren(exp.Is(this=one.copy(), expression=exp.null()), copy=False),
            expression=exp.true(),
        )
        found = absent if found is None else exp.Coalesce(this=found, expressions=[absent])
    _replace(node, found)


def _is_known(node: exp.Expr) -> bool:
    """True if a constant is a literal, its negative or a cast of it, which are never NULL."""
    node = node.unnest()
    if isinstance(node, exp.Neg | exp.Cast) and not isinstance(node, exp.TryCast):
        return _is_known(node.this)
    return isinstance(node, exp.Literal | exp.Boolean)


def _replace(node: exp.Expr, other: exp.Expr) -> None:
    """Put another expression in the place of one; a select item keeps its name."""
    if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
        name = node.sql("duckdb", comments=False).lower()
        other = exp.alias_(other, name, quoted=True, copy=False)
    node.replace(other)
