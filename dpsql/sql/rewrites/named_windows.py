"""WINDOW w AS (...): windows by name, written out where they are used."""

from __future__ import annotations

from sqlglot import exp

_PARTS = ("partition_by", "order", "spec")


def write_out_windows(tree: exp.Expr) -> None:
    """Write out the windows that SELECTs name; a name that is not given stays, and is refused.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("SELECT SUM(a) OVER (w ORDER BY b) FROM t WINDOW w AS (PARTITION BY c)")
    >>> write_out_windows(tree)
    >>> tree.sql()
    'SELECT SUM(a) OVER (PARTITION BY c ORDER BY b) FROM t'
    """
    for select in list(tree.find_all(exp.Select)):
        given: dict[str, exp.Expr] = {}
        for each in select.args.get("windows") or ():
            if each.name.casefold() in given:
                return
            _fill(each, given)
            given[each.name.casefold()] = each
        select.set("windows", None)
        for window in list(select.find_all(exp.Window)) if given else ():
            if window.find_ancestor(exp.Select) is select:
                _fill(window, given)


def _fill(window: exp.Expr, given: dict[str, exp.Expr]) -> None:
    """Give a window what the one has that it names, and that it does not say itself."""
    name = window.args.get("alias")
    known = None if name is None else given.get(name.name.casefold())
    if known is None:
        return
    for part in _PARTS:
        value = known.args.get(part)
        if value and not window.args.get(part):
            copied = [each.copy() for each in value] if isinstance(value, list) else value.copy()
            window.set(part, copied)
    window.set("alias", None)
