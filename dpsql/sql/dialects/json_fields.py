"""Fields of texts in JSON among answers: paths with dots, and functions as others call them.

They are written with the two functions that DuckDB has for it: ``json_extract`` gives JSON,
``json_extract_string`` text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

GET = "json_extract"
GET_TEXT = "json_extract_string"
_ALL = "[*]"
_PATH = re.compile(r"""\$(\.[^\W\d]\w*|\."[^"]*"|\[(\d+|\*)\])*""")
_READERS = {
    **dict.fromkeys((GET, "json_query", "json_extract_path"), (GET, "")),
    **dict.fromkeys((GET_TEXT, "json_value", "json_extract_scalar"), (GET_TEXT, "")),
    **dict.fromkeys(("json_query_array", "json_extract_array"), (GET, _ALL)),
    **dict.fromkeys(("json_value_array", "json_extract_string_array"), (GET_TEXT, _ALL)),
}
"""Functions that read JSON, by the names that others have for them, and what follows their path."""
_KINDS = {
    **dict.fromkeys(("double", "float64", "lax_float64"), "DOUBLE"),
    **dict.fromkeys(("int64", "lax_int64"), "BIGINT"),
    **dict.fromkeys(("bool", "lax_bool"), "BOOLEAN"),
    **dict.fromkeys(("string", "lax_string"), "VARCHAR"),
}
"""BigQuery's functions from JSON to another type."""
_NAMES: dict[type[exp.Expr], str] = {
    exp.Float64: "float64",
    exp.LaxFloat64: "float64",
    exp.Int64: "int64",
    exp.LaxInt64: "int64",
    exp.JSONBool: "bool",
    exp.LaxBool: "bool",
    exp.String: "string",
    exp.LaxString: "string",
    exp.JSONExtract: GET,
    exp.JSONExtractScalar: GET_TEXT,
    exp.JSONExtractArray: "json_extract_array",
    exp.JSONValueArray: "json_value_array",
}
FIELDS: tuple[type[exp.Expr], ...] = (exp.Dot, exp.Anonymous, *_NAMES)
"""Nodes that may be a field: of all else nothing is written out."""
_PLAIN = (
    *(exp.Literal, exp.Null, exp.Boolean, exp.AggFunc, exp.Filter, exp.WithinGroup, exp.Window),
    *(exp.Binary, exp.Neg, exp.Not, exp.Predicate),
)


def write_out_fields(nodes: Sequence[exp.Expr]) -> None:
    """Write paths with dots and functions of JSON as DuckDB has them, in place.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("SELECT float64((a).b.c), JSON_VALUE(d, '$.e'), (a).b FROM t", "duckdb")
    >>> write_out_fields(list(tree.walk(bfs=False)))
    >>> for each in tree.expressions:
    ...     print(each.sql("duckdb"))
    TRY_CAST(JSON_EXTRACT_STRING(JSON_EXTRACT(JSON_EXTRACT(SUBSTRING((a), 1), ...
    JSON_EXTRACT_STRING(CAST(d AS TEXT), '$.e')
    JSON_EXTRACT(SUBSTRING((a), 1), '$."b"') AS b
    """
    for node in reversed(nodes):
        found = _read(node)
        if found is None:
            continue
        if isinstance(node, exp.Dot) and isinstance(node.parent, exp.Select):
            found = exp.alias_(found, node.expression.name, copy=False)
        found.meta.update(node.meta)
        node.replace(found)


def field_of(node: exp.Expr, names: Sequence[str]) -> exp.Expr:
    """A field of a text in JSON, down a path of names: DuckDB refuses to take parts of all else."""
    path = "$" + "".join(f'."{name}"' for name in names)
    if _is_json(node):
        return _called(GET, node, path)
    text = exp.Substring(this=node, start=exp.Literal.number(1))
    return exp.Anonymous(this=GET, expressions=[text, exp.Literal.string(path)])


def _is_json(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.this == GET


def _called(name: str, node: exp.Expr, path: str) -> exp.Expr:
    text = node if _is_json(node) else exp.cast(node, "VARCHAR", copy=False)
    return exp.Anonymous(this=name, expressions=[text, exp.Literal.string(path)])


def _read(node: exp.Expr) -> exp.Expr | None:
    """DuckDB's expression for a node about JSON; None for all else."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        name = node.expression.name
        return None if '"' in name or _has_no_fields(node.this) else field_of(node.this, [name])
    called = _NAMES.get(type(node), "")
    if called:
        arguments = list(node.iter_expressions())
    elif isinstance(node, exp.Anonymous):
        called, arguments = str(node.this).lower(), list(node.expressions)
    else:
        return None
    if called in _KINDS and len(arguments) == 1:
        text = _called(GET_TEXT, arguments[0], "$")
        kind = exp.DataType.build(_KINDS[called], dialect="duckdb")
        return text if _KINDS[called] == "VARCHAR" else exp.TryCast(this=text, to=kind)
    path = _path(arguments[1:])
    if called not in _READERS or path is None or not arguments:
        return None
    name, after = _READERS[called]
    return _called(name, arguments[0], path + after)


def _has_no_fields(node: exp.Expr) -> bool:
    """Say whether a node is a number or the like: DuckDB refuses fields of these."""
    inner = node.unnest()
    while isinstance(inner, exp.Bracket) or (isinstance(inner, exp.Array) and inner.expressions):
        inner = (inner.this if isinstance(inner, exp.Bracket) else inner.expressions[0]).unnest()
    return isinstance(inner, (*_PLAIN, exp.Array))


def _path(arguments: Sequence[exp.Expr]) -> str | None:
    """The path that is written out; all of the text where there is none."""
    if not arguments:
        return "$"
    path = arguments[0]
    if len(arguments) > 1 or not isinstance(path, exp.JSONPath | exp.Literal):
        return None
    is_tree = isinstance(path, exp.JSONPath)
    text = str(path.sql("duckdb"))[1:-1].replace("''", "'") if is_tree else path.name
    return text if _PATH.fullmatch(text) else None
