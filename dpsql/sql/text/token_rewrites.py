"""The tokens of a statement, written so that DuckDB's parser takes what it does not as it is typed.

It is the parser of sqlglot as that is, which may be compiled: then nothing can derive from it.
Tokens that are put in stand where their neighbours do, so that carets are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

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
_BEFORE_ALIASES = (TokenType.R_PAREN, TokenType.VAR, TokenType.IDENTIFIER, TokenType.ALIAS)
MOST_ARGUMENTS = 8
"""Arguments above which a function that takes more takes any number."""


def parse_tokens(sql: str) -> list[exp.Expr | None]:
    """Parse SQL as ``sqlglot.parse`` does.

    Functions of names that DuckDB has and arguments that it has not, names that are words of other
    statements, elements of CUBE, ROLLUP and GROUPING SETS that compare, and ORDER BY and LIMIT
    after PIVOT are read besides.
    Raises: sqlglot.errors.SqlglotError, TooManyArgumentsError.
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
    check_arguments(tokens, _DUCKDB)
    # DuckDB takes a comma after the last CTE
    ends = zip(kinds, [*kinds[1:], None], strict=True)
    tokens = [t for t, pair in zip(tokens, ends, strict=True) if pair not in _ENDS]
    trees = _DUCKDB.parser().parse(_with_pivot(_with_sets(tokens)), sql)
    for tree in trees:
        for sets in () if tree is None else tree.find_all(exp.Cube, exp.Rollup, exp.GroupingSets):
            sets.set("expressions", [each.unnest() for each in sets.expressions])
    return list(trees)


class TooManyArgumentsError(Exception):
    """A call with more arguments than a function takes; ``errors`` says where, as the parser's."""

    def __init__(self, what: str, name: Token) -> None:
        super().__init__(what)
        place = {"line": name.line, "col": name.col, "highlight": name.text}
        self.errors: list[dict[str, object]] = [{"description": what, **place}]


def check_arguments(tokens: Sequence[Token], dialect: Dialect) -> None:
    """Refuse calls of which the parser would leave out arguments.

    ``MOD(a, 2, b)`` is ``MOD(a, 2)`` to it: what a function does not take is dropped.
    Raises: TooManyArgumentsError.
    """
    known, kind = dialect.parser_class, type(dialect)
    for name, count in _calls(tokens):
        called = name.text.upper()
        if called not in known.FUNCTIONS and called not in known.FUNCTION_PARSERS:
            continue
        if count > 1 and _loses(kind, called, count):
            most = next(n for n in range(count - 1, -1, -1) if n < 2 or not _loses(kind, called, n))
            what = f"{called.lower()}() takes at most {most} argument{'s' * (most != 1)}"
            raise TooManyArgumentsError(what, name)


def _calls(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Names that are called, with the number of their arguments."""
    waiting: list[tuple[Token | None, int]] = []
    for place, token in enumerate(tokens):
        depth = _DEPTHS.get(token.token_type, 0)
        if depth > 0:
            names_table = place > 1 and tokens[place - 2].token_type in _BEFORE_ALIASES
            is_call = token.token_type == TokenType.L_PAREN and place > 0 and not names_table
            waiting.append((tokens[place - 1] if is_call else None, 1))
        elif depth < 0 and waiting:
            name, count = waiting.pop()
            if name is not None:
                yield name, count
        elif token.token_type == TokenType.COMMA and waiting:
            waiting[-1] = waiting[-1][0], waiting[-1][1] + 1


@lru_cache(maxsize=4096)
def _loses(dialect: type[Dialect], name: str, count: int) -> bool:
    """Say whether the parser leaves out the last of so many arguments of a function.

    >>> [_loses(DuckDB, name, 3) for name in ("FLOOR", "MOD", "LEAST", "REGEXP_REPLACE")]
    [True, True, False, False]
    """
    if count > MOST_ARGUMENTS:
        return _loses(dialect, name, MOST_ARGUMENTS)
    words = [f"argument_{place}" for place in range(count)]
    try:
        (tree,) = dialect().parse(f"SELECT {name}({', '.join(words)})")
    except SqlglotError:
        return False
    nodes = () if tree is None else tree.walk()
    return all(str(node.this).lower() != words[-1] for node in nodes)


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
