"""The name of a select item without an alias: its text, as it is written.

Words are in lower case, blanks and comments one blank, and none within parentheses; texts and
quoted names stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.sql.text.lexemes import Lexeme

WRITTEN = "written"
"""Key under which an item notes its text."""
_ENDS = {
    *("from", "where", "group", "having", "qualify", "window", "order", "limit", "offset"),
    *("fetch", "union", "intersect", "except", "into"),
}
_WITHIN = {("from", "distinct"), ("group", "within")}
"""Pairs of words whose second ends no item: both are part of an expression."""


def note_texts(tree: exp.Expr, body: str, left: str, lexemes: Sequence[Lexeme]) -> None:
    """Note the texts of the items of a query; ``left`` is its text without options and bounds.

    >>> from sqlglot import parse_one
    >>> from dpsql.sql.text.lexemes import lex
    >>> text = "SELECT IF(a > 1, 'X', b),  SUM( c ) /2 FROM t"
    >>> tree, solid = parse_one(text), [each for each in lex(text) if each.kind != "space"]
    >>> note_texts(tree, text, text, solid)
    >>> [item.meta[WRITTEN] for item in tree.expressions]
    ["if(a > 1, 'X', b)", 'sum(c) /2']
    """
    select = tree
    while isinstance(select, exp.SetOperation):
        select = select.this
    items = select.expressions if isinstance(select, exp.Select) else []
    if all(isinstance(item, exp.Alias | exp.Column | exp.Star) for item in items):
        return
    texts = _texts_of_items(lexemes)
    if len(texts) != len(items):
        return
    for item, own in zip(items, texts, strict=True):
        start, end = (own[0].start, own[-1].end) if own else (0, 0)
        is_whole = body[start:end] == left[start:end]  # nothing was cut out of it
        if own and is_whole and not isinstance(item, exp.Alias | exp.Column | exp.Star):
            item.meta[WRITTEN] = _shown(own)


def _texts_of_items(lexemes: Sequence[Lexeme]) -> list[list[Lexeme]]:
    """The lexemes of every item of the first SELECT that is in no parentheses."""
    found: list[list[Lexeme]] = []
    depth, before = 0, ""
    for place, lexeme in enumerate(lexemes):
        word = lexeme.text.lower()
        depth += (word in "([{") - (word in ")]}")
        if found and depth == 0:
            if word in _ENDS and (word, before) not in _WITHIN:
                break
            if word == ",":
                found.append([])
                continue
        if found:
            found[-1].append(lexeme)
        elif word == "select" and depth == 0:
            after = lexemes[place + 1].text.lower() if place + 1 < len(lexemes) else ""
            if after in ("distinct", "all", "top", "with"):
                return []
            found.append([])
        before = word
    return found


def _shown(lexemes: Sequence[Lexeme]) -> str:
    """Lexemes as a name."""
    out, end = "", lexemes[0].start
    for each in lexemes:
        apart = each.start > end and out[-1:] not in ("(", "[") and each.text not in (")", "]", ",")
        out += " " if apart else ""
        out += each.text.lower() if each.kind == "word" else each.text
        end = each.end
    return out
