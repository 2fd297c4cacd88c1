"""The tokens of a statement, written so that DuckDB's parser takes what it does not as it is typed.

It is the parser of sqlglot as that is, which may be compiled: then nothing can derive from it.
Tokens that are put in stand where their neighbours do, so that carets are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB

from dpsql.sql.dialects.dialect_signatures import MARK, SHARED

_DUCKDB = DuckDB()
_DEPTHS = {
    **dict.fromkeys((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE), 1),
    **dict.fromkeys((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE), -1),
}
_SETS = (TokenType.CUBE, TokenType.ROLLUP, TokenType.GROUPING_SETS)
_PIVOTS = (TokenType.PIVOT, TokenType.UNPIVOT)
_QUERIES = (TokenType.SELECT, TokenType.FROM, TokenType.VALUES)
_AFTER = (
    *(TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH),
    TokenType.SEMICOLON,
)
_NAMES = {
    *("alter", "cube", "drop", "force", "grant", "if", "insert", "install", "lock", "map"),
    *("revoke", "rollback", "rollup"),
}
"""Words of which the parser makes no names, though they are names to DuckDB where none opens."""
_ENDS = {(TokenType.COMMA, each) for each in (TokenType.SELECT, TokenType.FROM)}
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACE)


def parse_tokens(sql: str) -> list[exp.Expr | None]:
    """Parse SQL as ``sqlglot.parse`` does.

    Functions of names that DuckDB has and arguments that it has not, names that are words of other
    statements, elements of CUBE, ROLLUP and GROUPING SETS that compare, and ORDER BY and LIMIT
    after PIVOT are read besides.
    Raises: sqlglot.errors.SqlglotError.
    """
    return parsed(_DUCKDB.tokenize(sql), sql)


def parsed(tokens: list[Token], sql: str) -> list[exp.Expr | None]:
    """Parse tokens of DuckDB's SQL, whose places are those in a text, in the same way."""
    kinds = [token.token_type for token in tokens]
    for name, before, after in zip(tokens, [None, *kinds], [*kinds[1:], None], strict=False):
        is_called, text = after == TokenType.L_PAREN, name.text.lower()
        if is_called and text in SHARED and name.token_type == TokenType.VAR:
            name.text = f"{text}{MARK}"
        is_name = after not in _OPENING and before != TokenType.WITH
        if is_name and text in _NAMES and name.token_type != TokenType.STRING:
            name.token_type = TokenType.IDENTIFIER
    # DuckDB takes a comma after the last CTE
    ends = zip(kinds, [*kinds[1:], None], strict=True)
    tokens = [t for t, pair in zip(tokens, ends, strict=True) if pair not in _ENDS]
    trees = _DUCKDB.parser().parse(_with_pivot(_with_sets(tokens)), sql)
    for tree in trees:
        for sets in () if tree is None else tree.find_all(exp.Cube, exp.Rollup, exp.GroupingSets):
            sets.set("expressions", [each.unnest() for each in sets.expressions])
    return list(trees)


def _with_sets(tokens: list[Token]) -> list[Token]:
    """Put what compares among the elements of grouping sets in parentheses."""
    if not any(token.token_type in _SETS for token in tokens):
        return tokens
    put: dict[int, list[Token]] = {}
    for place, token in enumerate(tokens[:-1]):
        if token.token_type in _SETS and tokens[place + 1].token_type == TokenType.L_PAREN:
            for first, last in _elements(tokens, place + 1):
                if last - first > 1 and tokens[first].token_type not in _SETS:
                    put.setdefault(first, []).append(_beside(tokens[first], "("))
                    put.setdefault(last, []).insert(0, _beside(tokens[last - 1], ")"))
    return [each for place, token in enumerate(tokens) for each in (*put.get(place, ()), token)]


def _elements(tokens: Sequence[Token], opening: int) -> Iterator[tuple[int, int]]:
    """Ranges of the elements of a list in parentheses; none where nothing closes it."""
    depth, first = 0, opening + 1
    found = []
    for place in range(opening, len(tokens)):
        kind = tokens[place].token_type
        depth += _DEPTHS.get(kind, 0)
        if depth == 0 or (depth == 1 and kind == TokenType.COMMA):
            found.append((first, place))
            first = place + 1
        if depth == 0:
            yield from found
            return


def _with_pivot(tokens: list[Token]) -> list[Token]:
    """A statement that begins with PIVOT or UNPIVOT, as FROM it and what stands after it."""
    depth, start = 0, None
    for place, token in enumerate(tokens):
        kind = token.token_type
        depth += _DEPTHS.get(kind, 0)
        if depth == 0 and start is None and kind in _QUERIES:
            return tokens
        if depth == 0 and start is None and kind in _PIVOTS:
            start = place
        elif depth == 0 and start is not None and kind in _AFTER:
            return _as_source(tokens, start, place)
    return tokens if start is None else _as_source(tokens, start, len(tokens))


def _as_source(tokens: list[Token], start: int, end: int) -> list[Token]:
    before = [_beside(tokens[start], "FROM"), _beside(tokens[start], "(")]
    closing = _beside(tokens[end - 1], ")")
    return [*tokens[:start], *before, *tokens[start:end], closing, *tokens[end:]]


def _beside(token: Token, text: str) -> Token:
    """A token that stands where another one does."""
    kinds = {"(": TokenType.L_PAREN, ")": TokenType.R_PAREN, "FROM": TokenType.FROM}
    return Token(kinds[text], text, token.line, token.col, token.start, token.end)
