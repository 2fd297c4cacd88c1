"""Text of PostgreSQL's SQL -> the tree that DuckDB's own spelling of it has, and what it returns.

One step before everything else: the text is parsed as PostgreSQL's, every expression is given its
type, what means something else to DuckDB is written otherwise, and the whole is written as DuckDB's
SQL and parsed again. The tokens of that stand where those that they come from stood, for carets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from sqlglot import ErrorLevel, Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import UnsupportedError

from dpsql.catalog import Catalog
from dpsql.dialect.columns import Typing, columns_of
from dpsql.dialect.labels import UNNAMED, label
from dpsql.dialect.meaning import PostgresMeaning
from dpsql.errors import NotSupportedError, Span
from dpsql.sql.dialects.dialect_queries import ReadSelect
from dpsql.sql.dialects.dialect_signatures import MARK
from dpsql.sql.shell.language import locate
from dpsql.sql.text.depth import check_depth
from dpsql.sql.text.item_texts import WRITTEN
from dpsql.sql.text.lexemes import Fragment
from dpsql.sql.text.table_mentions import is_quantifier
from dpsql.sql.text.token_rewrites import check_arguments, parsed

_POSTGRES, _DUCKDB = Postgres(), DuckDB()
_TAG = re.compile("\x02(\\d+),(\\d+)\x02(.)")
_NEAR = 16
"""Tokens ahead among which the place of one is looked for that has no mark of its own."""
_APART = ("date_part", "div")
"""Functions that the parser takes for operators, of other types."""
_WORDS = {*DuckDB.Tokenizer.KEYWORDS}


class PostgresReader:
    """Reads queries over the tables of ``catalog``, which is replaced by what is known by then."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def read(self, text: str, fragment: Fragment) -> ReadSelect:
        """Read one query; ``text`` is that of the fragment, with blanks for what is dpsql's own.

        Raises: NotSupportedError (E_FUNCTION); sqlglot.errors.SqlglotError.
        """
        tokens = _POSTGRES.tokenize(text)
        for name, after in pairwise(tokens):
            if name.text.lower() in _APART and after.token_type == TokenType.L_PAREN:
                name.text = f"{name.text.lower()}{MARK}"
        check_arguments(tokens, _POSTGRES)
        trees = _POSTGRES.parser().parse(tokens, text)
        if len(trees) != 1 or not isinstance(trees[0], exp.Query):
            return ReadSelect(text, list(trees), None)
        tree: exp.Expr = trees[0]
        check_depth(tree)
        _prepare(tree)

        def place(node: exp.Expr) -> Span:
            return locate(node, fragment)

        named = {id(item): label(item, text) for item in _items(tree)}
        typing = Typing(
            partial(columns_of, self.catalog),
            lambda item: named.get(id(item)) or label(item, text),
            PostgresMeaning(place),
        )
        labels = [_labels(select, text) for select in tree.find_all(exp.Select)]
        columns = typing.query(tree, {})
        shown = _name_items(tree, labels)
        _tag(tree)
        try:
            tagged = tree.sql("duckdb", identify=True, comments=False, unsupported_level=_RAISED)
        except UnsupportedError as error:
            what = f"{error} has no counterpart".splitlines()[0]
            hint = "SET dialect = 'duckdb' takes DuckDB's spelling"
            raise NotSupportedError("E_FUNCTION", what, hint=hint, span=fragment.whole()) from None
        found = parsed(_placed(_DUCKDB.tokenize(tagged), _POSTGRES.tokenize(text)), text)
        if len(found) == 1 and found[0] is not None:
            _note_names(found[0], shown)
        return ReadSelect(_TAG.sub("", tagged), found, None if typing.is_missing else columns)


_RAISED = ErrorLevel.RAISE


def _items(tree: exp.Expr) -> list[exp.Expr]:
    return [item for select in tree.find_all(exp.Select) for item in select.expressions]


def _labels(select: exp.Select, text: str) -> tuple[exp.Select, list[str]]:
    return select, [label(item, text) for item in select.expressions]


def _prepare(tree: exp.Expr) -> None:
    """Write out what PostgreSQL takes for granted, and leave out what has no meaning here."""
    for node in list(tree.find_all(*_PREPARED)):
        match node:
            case exp.Identifier() if not node.args.get("quoted"):
                node.set("this", node.name.lower())
            case exp.Anonymous() if is_quantifier(node) and len(node.expressions) == 1:
                kind = exp.All if str(node.this).lower() == "all" else exp.Any
                node.replace(kind(this=node.expressions[0]))
            case exp.Select():
                node.set("locks", None)
            case exp.Limit() if isinstance(node.expression, exp.Null):
                node.pop()
            case exp.Limit() if node.expression.sql().upper() == "ALL":
                node.pop()
            case exp.Values() if isinstance(node.parent, exp.From | exp.Join):
                _name_columns(node)
            case exp.Table():
                node.set("only", None)
                if isinstance(node.this, exp.Func) and node.alias and not node.alias_column_names:
                    node.args["alias"].set("columns", [exp.to_identifier(node.alias)])


_PREPARED = (exp.Select, exp.Values, exp.Table, exp.Limit, exp.Identifier, exp.Anonymous)


def _name_columns(node: exp.Values) -> None:
    """Name the columns of VALUES as PostgreSQL does where nobody else does."""
    alias = node.args.get("alias")
    first = node.expressions[0]
    width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
    if alias is not None and not alias.args.get("columns"):
        names = [exp.to_identifier(f"column{place}") for place in range(1, width + 1)]
        alias.set("columns", names)


def _name_items(tree: exp.Expr, labels: Sequence[tuple[exp.Select, list[str]]]) -> list[str | None]:
    """Give names to the items that others may name; returns those of the first SELECT."""
    outer = tree
    while not isinstance(outer, exp.Select) and outer is not None:
        outer = outer.this
    shown: list[str | None] = []
    for select, names in labels:
        ordered = {
            each.name.lower()
            for order in [tree.args.get("order"), select.args.get("order")]
            for each in (() if order is None else order.find_all(exp.Column))
        }
        for item, name in zip(list(select.expressions), names, strict=True):
            is_plain = isinstance(item, exp.Alias | exp.Star) or item.is_star
            is_named = isinstance(item, exp.Column) and item.name == name
            if select is outer:
                shown.append(None if is_plain or is_named else name)
            needed = select is not outer or name in ordered
            if is_plain or is_named or name == UNNAMED or names.count(name) > 1 or not needed:
                continue
            inner = item.copy()
            item.replace(exp.alias_(inner, name, quoted=True, copy=False))
    return shown


def _note_names(tree: exp.Expr, shown: Sequence[str | None]) -> None:
    """Note the names of the columns of a result that the text gives none."""
    select = tree
    while not isinstance(select, exp.Select) and select is not None:
        select = select.this
    if select is None or len(select.expressions) != len(shown):
        return
    for item, name in zip(select.expressions, shown, strict=True):
        if name is not None and not isinstance(item, exp.Alias):
            item.meta[WRITTEN] = name


def _tag(tree: exp.Expr) -> None:
    """Write its place, and whether it was quoted, before every name."""
    for node in tree.find_all(exp.Identifier):
        start, end = node.meta.get("start", ""), node.meta.get("end", "")
        is_word = not node.args.get("quoted")
        if start == "":
            start, end = _beside(node)
        node.set("this", f"\x02{start},{end}\x02{'w' if is_word else 'q'}{node.name}")


def _beside(node: exp.Expr) -> tuple[int, int]:
    """The place of a name that was put in: that of what stands around it."""
    around: exp.Expr | None = node
    while around is not None:
        metas = [each.meta for each in around.walk() if "start" in each.meta]
        if metas:
            return metas[0]["start"], metas[0]["end"]
        around = around.parent
    return 0, 0


def _placed(tokens: list[Token], original: list[Token]) -> list[Token]:
    """Tokens, each at the place of the one that it comes from, and names as they were written."""
    starts = {token.start: place for place, token in enumerate(original)}
    at, last = 0, original[0] if original else None
    for token in tokens:
        found = _TAG.match(token.text)
        if found is not None:
            token.text = token.text[found.end() :]
            start, end = int(found[1]), int(found[2])
            is_word = found[3] == "w" and re.fullmatch(r"[^\W\d]\w*", token.text) is not None
            if is_word and token.text.upper() not in _WORDS:
                token.token_type = TokenType.VAR
            at = starts.get(start, at)
            last = original[at] if original else None
            token.start, token.end = start, end
            if last is not None:
                token.line, token.col = last.line, last.col
            continue
        ahead = range(at, min(len(original), at + _NEAR))
        text = token.text.lower()
        near = next((place for place in ahead if original[place].text.lower() == text), None)
        if near is not None and (text.isalnum() or near <= at + 1):
            at, last = near, original[near]
        if last is not None:
            token.start, token.end, token.line, token.col = (
                last.start,
                last.end,
                last.line,
                last.col,
            )
    return tokens
