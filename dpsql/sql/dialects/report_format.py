"""The argument ``report_format`` of aggregates, as ZetaSQL and BigQuery have it.

``COUNT(*, report_format => 'JSON')`` is ``DP_REPORT(COUNT(*))``: the answer and what is known of
its noise, as text in JSON.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.errors import printable
from dpsql.sql.text.lexemes import Fragment, Lexeme, blank_out, lex

WORD = "report_format"
REPORT = "dp_report"
"""The function that an aggregate with this argument is read as."""
MARK = "\x01"
"""The mark in brackets after such an aggregate until it is parsed; nobody can type it."""
_CALLED = f")['{MARK}']"
BETWEEN = ("space", "comment")
_WORKS = f"COUNT(*, {WORD} => 'JSON')"


def take_reports(
    fragment: Fragment, text: str, lexemes: Sequence[Lexeme]
) -> tuple[str, list[Lexeme], list[tuple[int, int]]]:
    """Cut the arguments out of a SELECT; blanks take their place, so that positions stay.

    Returns the text, what else there is in it, and where each began and its call ends.
    Raises: ProgrammingError (E_PARSE, E_SETTING).

    >>> from dpsql.sql.text.lexemes import lex
    >>> text = "SELECT COUNT(*, report_format => 'JSON') FROM t"
    >>> solid = [item for item in lex(text) if item.kind != "space"]
    >>> body, rest, places = take_reports(Fragment(text, 0, len(text)), text, solid)
    >>> " ".join(body.split()), places
    ('SELECT COUNT(* ) FROM t', [(14, 40)])
    >>> marked(Fragment(text, 0, len(text)), body, places).replace(MARK, "MARK")
    "SELECT COUNT(*)['MARK']                     FROM t"
    """
    rest: list[Lexeme] = []
    found: list[tuple[int, int]] = []
    if WORD not in text.lower():
        return text, list(lexemes), found
    place = 0
    while place < len(lexemes):
        lexeme, after = lexemes[place], [each.text for each in lexemes[place + 1 : place + 3]]
        if lexeme.kind != "word" or lexeme.text.lower() != WORD or after != ["=", ">"]:
            rest.append(lexeme)
            place += 1
            continue
        end, value = _closing(lexemes, place), place + 3
        stop = next((k for k in range(value, end) if lexemes[k].text == ","), end)
        comma = lexemes[place - 1]
        if comma.text != "," or not rest or end == len(lexemes) or stop == value:
            fragment.refuse(lexeme, "E_PARSE", f"{WORD} is malformed", _WORKS)
        rest.pop()
        text = blank_out(text, comma.start, lexemes[stop - 1].end)
        if _format(fragment, lexemes[value:stop]) == "JSON":
            found.append((comma.start, lexemes[end].end))
        place = stop
    return text, rest, found


def _closing(lexemes: Sequence[Lexeme], place: int) -> int:
    """Position of the parenthesis that closes the call around a lexeme."""
    depth = 0
    for index in range(place, len(lexemes)):
        depth += (lexemes[index].text == "(") - (lexemes[index].text == ")")
        if depth < 0:
            return index
    return len(lexemes)


def _format(fragment: Fragment, lexemes: Sequence[Lexeme]) -> str:
    """The format that is asked for: a word, a text, or a value of ZetaSQL's type for it."""
    last = lexemes[-1]
    word = last.text[1:-1] if last.kind in ("string", "quoted") else last.text
    parts = [each.text == "." for each in lexemes]
    is_name = parts == [bool(place % 2) for place in range(len(parts))] and not parts[-1]
    if word.upper() not in ("JSON", "DEFAULT") or not is_name:
        shown = "".join(each.text for each in lexemes)[:40]
        what = f"{WORD} => {printable(shown)} is not supported"
        fragment.refuse(lexemes[0], "E_SETTING", what, f"{WORD} => 'JSON'")
    return word.upper()


def marked(fragment: Fragment, text: str, places: Sequence[tuple[int, int]]) -> str:
    """A text with the calls marked whose arguments were cut out; all else stays where it is.

    Raises: ProgrammingError (E_PARSE) where other arguments follow.
    """
    for start, end in places:
        left = [each for each in lex(text[start : end - 1]) if each.kind not in BETWEEN]
        if left:
            at = Lexeme(left[0].kind, left[0].text, start + left[0].start)
            fragment.refuse(at, "E_PARSE", f"{WORD} comes before another argument", _WORKS)
        text = blank_out(text, start, end)
        room = text.index(" " * len(_CALLED), start)
        text = text[:room] + _CALLED + text[room + len(_CALLED) :]
    return text


def write_out_reports(tree: exp.Expr) -> None:
    """Write marked calls as DP_REPORT of them, in place, and names with dots as fields of these."""
    found = False
    for node in list(tree.find_all(exp.Bracket)):
        if [each.name for each in node.expressions if isinstance(each, exp.Literal)] == [MARK]:
            report: exp.Expr = exp.Anonymous(this=REPORT, expressions=[node.this])
            if isinstance(node.parent, exp.Select):
                name = report.sql("duckdb", comments=False).lower()
                report = exp.alias_(report, name, quoted=True, copy=False)
            node.replace(report)
            found = True
    for select in list(tree.find_all(exp.Select)) if found else ():
        _write_out_names(select)


def _write_out_names(select: exp.Select) -> None:
    """Write ``r.result.value``, where ``r`` is a report among the items, as a field of it."""
    items = {each.alias.casefold(): each.this for each in select.expressions if _is_report(each)}
    sources = (select.args.get("from_"), *(select.args.get("joins") or ()))
    for table in (each.this.alias_or_name.casefold() for each in sources if each is not None):
        items.pop(table, None)
    clauses = [select.args.get(key) for key in ("having", "qualify", "order")]
    for part in [*select.expressions, *filter(None, clauses)] if items else ():
        for column in list(part.find_all(exp.Column)):
            names = column.parts
            report = items.get(names[0].name.casefold()) if len(names) > 1 else None
            if report is not None and column.find_ancestor(exp.Query) is select:
                field: exp.Expr = exp.paren(report.copy(), copy=False)
                for name in names[1:]:
                    field = exp.Dot(this=field, expression=name.copy())
                column.replace(field)


def _is_report(item: exp.Expr) -> bool:
    called = item.this if isinstance(item, exp.Alias) else None
    return isinstance(called, exp.Anonymous) and str(called.this).lower() == REPORT
