"""grammar/: parser and sampler of grammar/dpsql.lark, its case files, and what the binder says.

Text and grammar meet in a canonical form: lexemes apart by one space, words in capitals where they
are keywords, without comments.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import lark
from lark.grammar import NonTerminal, Rule

import dpsql
from dpsql.answer.model_answers import check_target
from dpsql.answer.synthetic_tables import check_name, find_synthetic
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import plan_offered
from dpsql.dbapi.show import describe
from dpsql.settings.table import BOTH, options_of
from dpsql.sql.compiled import Compiled
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import Statement, opens_list, parse
from dpsql.sql.text.synthetic import Creation

ROOT = Path(__file__).parents[2]
GRAMMAR = ROOT / "grammar"
TABLES = ROOT / "build" / "grammar.tables"
"""What is made of the grammar, which takes 2.5 s; lark makes it anew where the text is another."""

CATALOG_CODES = {
    *("E_UNKNOWN_TABLE", "E_UNKNOWN_COLUMN", "E_DOMAIN", "E_DOMAIN_EVAL", "E_NOT_IN_DOMAIN"),
    *("E_BIN_EDGE", "E_NO_BOUNDS", "E_EXPR_IN_AGG", "E_GROUP_BY", "E_ORDER_BY", "E_NO_AGGREGATE"),
    *("E_TOO_LARGE", "E_TOO_COMPLEX", "E_LITERAL", "E_PREDICATE", "E_JOIN", "E_SUBQUERY"),
    *("E_SET_OP", "E_WINDOW", "E_AGGREGATE", "E_EPSILON", "E_DELTA", "E_SETTING", "E_CTE"),
    *("E_DEGENERATE_BOUNDS", "E_NO_TABLE", "E_LIMIT", "E_WORKLOAD", "E_INPUT", "E_OUTPUT"),
}
"""Refusals that depend on names, types, values, sizes or on what is private, not on form."""

_WORDS_OF_CATALOG = (
    *(
        "dp_",
        "DP_",
        "STAR",
        "of different lengths",
        "more names than",
        "with GROUP BY",
        "a workload consists",
    ),
    *("a table", "synthetic table", "a field of what is no report"),
    # NULL[0] is a type to our parser.
    "DATATYPE with",
    "the type NULL[",
    # a = b = c, though a = ANY(...) = c is none: one token ahead cannot tell them apart.
    "Chained comparisons",
)

MADE = ("people", "products")
"""Synthetic tables and domains that are taken to be there."""

_LEXEME = re.compile(
    r"""\s+|--[^\n]*|/\*.*?\*/
      |('(?:[^']|'')*'|"(?:[^"]|"")*"|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?
      |[^\W\d]\w*|!~\*|!~|~\*|<>|!=|=>|<=|>=|<<|>>|\|\||::|//|.)""",
    re.VERBOSE | re.DOTALL,
)


@cache
def parser() -> lark.Lark:
    """The parser of the grammar."""
    text = (GRAMMAR / "dpsql.lark").read_text("utf-8")
    TABLES.parent.mkdir(exist_ok=True)
    return lark.Lark(
        text,
        parser="lalr",
        lexer="contextual",
        maybe_placeholders=False,
        propagate_positions=True,
        cache=str(TABLES),
    )


@cache
def keywords() -> frozenset[str]:
    """The words that the grammar names."""
    found: set[str] = set()
    for terminal in parser().terminals:
        pattern = terminal.pattern.to_regexp()
        if terminal.name not in ("TEXT", "QUOTED", "NUMBER"):
            found |= set(re.findall(r"[A-Z][A-Z_0-9]+", pattern))
    return frozenset(found)


def canonical(sql: str) -> str:
    """Lexemes with one space between; keywords in capitals; the last semicolon left out."""
    words = [match.group(1) for match in _LEXEME.finditer(sql) if match.group(1)]
    if words and words[-1] == ";":
        words.pop()
    words = _without_ends(words)
    upper = [w.upper() if w.upper() in keywords() else w for w in words]
    return " ".join(upper)


def _without_ends(words: list[str]) -> list[str]:
    """Leave commas at the end of lists in a query out: any list in parentheses may end with one."""
    ends, opened, rows = set[int](), list[tuple[str, int]](), [False]
    for place, word in enumerate(words):
        if word not in ("(", ")", ","):
            rows[-1] = word.lower() == "values"
        if word == "(":
            before = words[place - 1].lower() if place else ""
            opened.append(("values" if rows[-1] else before, 0))
            rows.append(False)
        elif word == "," and opened:
            opened[-1] = opened[-1][0], opened[-1][1] + 1
        elif word == ")" and opened:
            before, commas = opened.pop()
            rows.pop()
            is_list = before != "options" and (commas > 1 or opens_list(before))
            if words[place - 1] == "," and words[place - 2] not in ("(", ",") and is_list:
                ends.add(place - 1)
    is_query = not words or words[0].lower() not in ("create", "drop", "materialize")
    return [word for place, word in enumerate(words) if not is_query or place not in ends]


def derives(sql: str) -> bool:
    """Whether the grammar derives a statement."""
    try:
        parser().parse(canonical(sql))
    except lark.exceptions.LarkError:
        return False
    return True


def rules_of(sql: str) -> set[str]:
    """The names of the rules that derive a statement."""
    tree = parser().parse(canonical(sql))
    return {str(each.data).split("{")[0] for each in tree.iter_subtrees()}


def is_of_catalog(error: dpsql.Error) -> bool:
    """Whether a refusal is about the catalog, not about the form of a statement.

    A name that is a word of DuckDB's or of our parser's, such as ``decade``, is no matter of form.
    """
    if re.search(r'syntax error at or near "\w+"', error.message):
        return True
    word = re.search(r"cannot be parsed near '(\w+)'", error.message)
    if word is not None and word.group(1).upper() in keywords():
        return True
    return error.code in CATALOG_CODES or any(w in error.message for w in _WORDS_OF_CATALOG)


def agrees(sql: str, found: dpsql.Error | Compiled | None) -> bool:
    """Whether grammar and binder say the same of a statement."""
    if isinstance(found, dpsql.Error):
        return is_of_catalog(found) or not derives(sql)
    named = re.sub(r"\bAS '\w+'", 'AS "x"', sql)  # DuckDB takes texts for names after AS
    return derives(named)


def verdict(connection: Connection, sql: str) -> dpsql.Error | Compiled | None:
    """The binder's word on a statement: what it compiles to (None for our own), or its refusal."""
    try:
        fragments = split_statements(sql)
        if len(fragments) != 1:
            return dpsql.ProgrammingError("E_MULTI_STATEMENT", "not one statement")
        statement: Statement = parse(fragments[0])
        if statement.kind == "select":
            for name, text in statement.options:
                if name in options_of(BOTH):
                    connection.terms.with_text(name, text)
            return connection.engine.compile([statement])[0]
        if statement.kind == "set":
            connection.terms.with_text(*statement.words)
        if statement.kind == "describe" and statement.words[0] not in MADE:
            describe(connection.engine, statement)
        if statement.kind == "find" and statement.search is not None:
            asked = split_statements(f"DESCRIBE {statement.search.table}")
            describe(connection.engine, parse(asked[0]))
            for name, text in statement.search.options:
                if name in options_of(BOTH):
                    connection.terms.with_text(name, text)
        if statement.creation is not None:
            check_name(statement.creation.name, connection.engine.known.tables)
            plan_offered(connection.engine, _without_file(statement.creation), connection.terms)
        if statement.rows is not None:
            if statement.rows.name.casefold() not in MADE:
                find_synthetic(connection.engine.models, statement.rows.name)
            check_target(Path(statement.rows.path))
    except dpsql.Error as error:
        return error
    return None


def _without_file(creation: Creation) -> Creation:
    """A synthetic table for a workload that is written out."""
    if creation.file is None:
        return creation
    return replace(
        creation,
        file=None,
        workload=tuple(split_statements("SELECT a, COUNT(*) FROM t GROUP BY a")),
    )


# ---- case files ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One statement of a case file with the comments that follow it."""

    sql: str
    notes: tuple[str, ...]


def read_cases(name: str) -> list[Case]:
    """The statements of a file; comment lines right after a statement are its notes."""
    cases: list[Case] = []
    lines: list[str] = []
    notes: list[str] = []
    last = ""
    for line in [*(GRAMMAR / name).read_text("utf-8").split("\n"), ""]:
        if line.startswith("-- ") and last:
            notes.append(line[3:])
            continue
        if last:
            cases.append(Case(last, tuple(notes)))
            last, notes = "", []
        if line.startswith("--") or (not line and not lines):
            continue
        lines.append(line)
        if line.rstrip().endswith(";"):
            last, lines = "\n".join(lines).rstrip()[:-1], []
    return cases


def emitted() -> list[Case]:
    """What tools emit."""
    files = sorted(path.name for path in (GRAMMAR / "emitted").glob("*.sql"))
    return [case for name in files for case in read_cases(f"emitted/{name}")]


def write_cases(name: str, annotated: Callable[[str], list[str]]) -> str:
    """The text of a case file with the notes of every statement made anew."""
    notes: list[str] = []
    lines: list[str] = []
    after = False
    for line in (GRAMMAR / name).read_text("utf-8").split("\n"):
        if after and line.startswith("-- "):
            continue
        lines.append(line)
        notes.append(line)
        after = line.rstrip().endswith(";") and not line.startswith("--")
        if after:
            lines += [f"-- {note}" for note in annotated("\n".join(notes).rstrip()[:-1])]
        if after or not line or line.startswith("--"):
            notes = []
    return "\n".join(lines)


def accepted_notes(connection: Connection, sql: str) -> list[str]:
    """What a statement of accepted.sql compiles to."""
    found = verdict(connection, sql)
    if isinstance(found, dpsql.Error):
        raise AssertionError(f"{sql}\n{found}")
    return products_text(found) if found is not None else ["no query"]


def rejected_notes(connection: Connection, sql: str) -> list[str]:
    """Code, column of the caret and hint of the refusal of a statement of rejected.sql."""
    found = verdict(connection, sql)
    if not isinstance(found, dpsql.Error):
        raise AssertionError(f"accepted: {sql}")
    line, column = found.span.position() if found.span is not None else (0, 0)
    place = f" at line {line}, column {column}" if line else ""
    return [
        f"{found.code}{place}: {found.message}",
        *([f"hint: {found.hint}"] if found.hint else []),
    ]


def products_text(compiled: Compiled, most: int = 6) -> list[str]:
    """The products of a statement, each once: ``age: 74x74 Identity; sex: 1x2 Dense``."""
    found: dict[str, None] = {}
    for _, answer in compiled.answers():
        for term in answer.terms:
            parts = []
            for name, operator in term.factors.items():
                rows, cells = operator.shape
                parts.append(f"{name}: {rows}x{cells} {type(operator).__name__}")
            for name, polynomial in term.polynomials.items():
                a, b, c = map(float, polynomial.coefficients)
                parts.append(f"{name}: {a:g} + {b:g} v + {c:g} v^2")
            sign = "" if term.scale == 1 else f"{term.scale:g} x "
            found[sign + ("; ".join(parts) or "everything")] = None
    lines = list(found)
    rest = [f"... {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *rest]


# ---- sampling -----------------------------------------------------------------------------------

CALLS = {"ONE", "ONE_OR_TWO", "TWO", "TWO_OR_THREE", "THREE", "MANY"}
FREE = {
    *("add", "multiply", "minus", "bitwise", "or", "and", "not", "compare", "between", "in"),
    *("in_query", "like", "is", "distinct_from", "cast_to", "flipped"),
}

KINDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "number": (("a", "e", "a", "t . a"), ("0", "1", "2", "3", "5", "1.5")),
    "text": (("b", "b", '"b"'), ("'x'", "'y'", "'it''s'", "'%s'", "''")),
    "date": (("d",), ("DATE '2024-01-01'", "DATE '2023-12-01'")),
    "truth": (("c",), ("TRUE", "FALSE")),
}
MEASURES = ("a", "e", "m", "q", "r", "w")
LADDER = {
    *("either", "both", "denied", "compared", "tested", "bits", "mixed", "inverted"),
    *("sum", "product", "signed"),
    *("typed", "row_atom", "cell_atom"),
}
RARE = {"nested", "subquery", "options", "clip", "derived", "with", "set_operator"}
OPERATORS: Mapping[str, set[str]] = {
    "number": {"add", "multiply", "minus"},
    "measure": {"add", "minus"},
    "text": set(),
    "date": set(),
    "truth": set(),
}
TESTS: Mapping[str, tuple[str, ...]] = {
    "number": ("compare", "compare", "between", "in", "is", "distinct_from"),
    "text": ("compare", "like", "in", "is", "distinct_from"),
    "date": ("compare", "between", "in", "is"),
    "truth": ("is", "compare"),
}
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "number": ("ABS", "FLOOR", "CEIL", "SIGN", "ROUND", "COALESCE", "GREATEST", "LEAST", "NULLIF"),
    "text": ("LOWER", "UPPER", "TRIM", "COALESCE", "GREATEST", "REPLACE", "CONCAT"),
    "date": ("COALESCE", "GREATEST"),
    "truth": ("COALESCE",),
    "measure": ("COALESCE",),
}
WORDS = {
    "NAME": ("k0", "k1", "total"),
    "LABEL": ("total", "limit"),
    "WORD": ("a", "k0", "from", "total"),
    "QUOTED": ('"k 2"', '"a"'),
    "TEXT": ("'x'", "'y'", "'year'"),
    "NUMBER": ("0", "1", "2", "3", "0.5", "10"),
    "ROW_COUNT": ("1", "1000"),
    "QUOTED_UNIT": ("'day'", "'month'"),
    "JSON_PATH": ("'$'", "'$.result.value'"),
}


class Sampler:
    """Draws sentences of bounded depth; leaves are columns and literals of one type at a time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.kind = "number"
        self.truth = False
        self.rules: dict[str, list[Rule]] = {}
        for rule in parser().rules:
            self.rules.setdefault(str(rule.origin.name), []).append(rule)
        self.patterns = {t.name: t.pattern.to_regexp() for t in parser().terminals}
        self.depths = _depths(self.rules)

    def sentence(self) -> str:
        """A statement: a SELECT whose keys and groups agree, or one derived freely."""
        if self.rng.random() < 0.2:
            return self.draw("start", 24)
        return self.select()

    def select(self) -> str:
        """A SELECT over one private table, grouped by some of what it selects."""
        keys = [self.key() for _ in range(self.rng.choice([0, 0, 1, 1, 2]))]
        cells = [self.cell() for _ in range(self.rng.choice([1, 1, 2]))]
        items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
        items += [f"{cell} AS x{i}" for i, cell in enumerate(cells)]
        where = f" {self.draw('where', 12)}" if self.rng.random() < 0.6 else ""
        group = f" GROUP BY {self.group(keys)}" if keys else ""
        text = f"SELECT {' , '.join(items)} FROM t{where}{group}"
        if keys and self.rng.random() < 0.3:
            text += " HAVING COUNT ( * ) > 0.5 ORDER BY ROUND ( COUNT ( * ) ) DESC , "
            text += " , ".join(f"k{i}" for i in range(len(keys)))
        return text

    def key(self) -> str:
        self.kind = self.rng.choice(list(KINDS))
        column = self.rng.choice(KINDS[self.kind][0])
        if self.rng.random() < 0.6:
            return column
        return self.draw("bits{row_atom}", 10)

    def cell(self) -> str:
        self.kind = self.rng.choice(["number", "measure"])
        return self.draw("aggregate", 14)

    def group(self, keys: list[str]) -> str:
        listed = " , ".join(keys)
        way = self.rng.randrange(6)
        if way == 0:
            return " , ".join(str(i + 1) for i in range(len(keys)))
        if way == 1:
            return "ALL"
        if way == 2:
            return f"{self.rng.choice(['CUBE', 'ROLLUP'])} ( {listed} )"
        if way == 3:
            return f"GROUPING SETS ( ( {listed} ) , ( ) )"
        return listed

    def draw(self, name: str, depth: int) -> str:
        """Derive from a rule; below ``depth`` only what ends soonest."""
        if name == "column":
            return self.rng.choice(MEASURES if self.kind == "measure" else KINDS[self.kind][0])
        if name == "literal":
            kind = "number" if self.kind == "measure" else self.kind
            return self.rng.choice([*KINDS[kind][1], "NULL"] if depth > 2 else KINDS[kind][1])
        if name == "table":
            return self.rng.choice(["t", "t", "t AS t", "bands"])
        if name in ("row", "cell") and self.rng.random() < 0.9:
            atom = f"{name}_atom"
            return self.test(depth) if self.truth else self.draw(f"bits{{{atom}}}", depth - 1)
        if name in ("filter", "on", "where"):
            self.truth, kind = True, self.kind
            found = self.derive(self.rng.choice(self.rules[name]), depth)
            self.truth, self.kind = False, kind
            return found
        choices = self.rules[name]
        if self.rng.random() < 0.97:
            choices = self.suited(choices)
        if name in ("row_atom", "cell_atom") and self.rng.random() < 0.7:
            return self.draw("column", depth - 1)
        ladder = name.split("{")[0] in LADDER
        if depth <= 0 or self.rng.random() < (0.75 if ladder else 0.0):
            least = min(self.depths_of(rule) for rule in choices)
            choices = [rule for rule in choices if self.depths_of(rule) == least]
        return self.derive(self.rng.choice(self.rare(choices)), depth)

    def derive(self, rule: Rule, depth: int) -> str:
        """The words of one alternative."""
        parts = []
        for symbol in rule.expansion:
            if isinstance(symbol, NonTerminal):
                parts.append(self.draw(str(symbol.name), depth - 1))
            else:
                parts.append(self.word(str(symbol.name)))
        return " ".join(part for part in parts if part)

    def test(self, depth: int) -> str:
        """A condition: comparisons of things of one type, joined by AND, OR and NOT."""
        if depth > 8 and self.rng.random() < 0.35:
            left, right = self.test(depth - 4), self.test(depth - 4)
            return f"( {left} {self.rng.choice(['AND', 'OR'])} {right} )"
        self.truth = False
        self.kind = self.rng.choice(list(TESTS))
        alias = self.rng.choice(TESTS[self.kind])
        rules = self.rules["compared{row_atom}"] + self.rules["tested{row_atom}"]
        found = self.derive(self.rng.choice([r for r in rules if r.alias == alias]), min(depth, 3))
        self.truth = True
        return f"NOT {found}" if self.rng.random() < 0.15 else found

    def suited(self, choices: list[Rule]) -> list[Rule]:
        """The alternatives whose operator or function fits the type of the leaves."""
        fitting = []
        for rule in choices:
            named = [str(s.name) for s in rule.expansion]
            calls = [name for name in named if name in CALLS]
            fits = not calls or any(self.functions(name) for name in calls)
            if rule.alias in FREE:
                fits = rule.alias in OPERATORS[self.kind]
            if fits:
                fitting.append(rule)
        return fitting or choices

    def functions(self, terminal: str) -> list[str]:
        known = re.findall(r"[A-Z][A-Z_0-9]+", self.patterns[terminal])
        return [name for name in known if name in FUNCTIONS[self.kind]]

    def rare(self, choices: list[Rule]) -> list[Rule]:
        """The alternatives without sub-queries, which are drawn now and then only."""
        if self.rng.random() < 0.03:
            return choices
        plain = [r for r in choices if not any(str(s.name) in RARE for s in r.expansion)]
        return plain or choices

    def depths_of(self, rule: Rule) -> int:
        inner = [self.depths[str(s.name)] for s in rule.expansion if isinstance(s, NonTerminal)]
        return 1 + max(inner, default=0)

    def word(self, terminal: str) -> str:
        if terminal in WORDS:
            return self.rng.choice(WORDS[terminal])
        if terminal in CALLS and self.functions(terminal) and self.rng.random() < 0.97:
            return self.rng.choice(self.functions(terminal))
        pattern = re.sub(r"\(\?[=!].*\)$", "", self.patterns[terminal]).replace("(?:", "(")
        if pattern.startswith("(") and pattern.endswith(")"):
            pattern = pattern[1:-1]
        return self.rng.choice([re.sub(r"\\(.)", r"\1", part) for part in _split(pattern)])


def _split(pattern: str) -> list[str]:
    return re.split(r"(?<!\\)\|", pattern)


def _depths(rules: Mapping[str, list[Rule]]) -> dict[str, int]:
    """How deep the shallowest sentence of every rule is."""
    depths = dict.fromkeys(rules, 1_000)
    for _ in range(len(rules)):
        before = dict(depths)
        for name, choices in rules.items():
            inner = [
                [depths[str(s.name)] for s in rule.expansion if isinstance(s, NonTerminal)]
                for rule in choices
            ]
            depths[name] = min(1 + max(each, default=0) for each in inner)
        if depths == before:
            break
    return depths


def mutated(sql: str, rng: random.Random) -> str:
    """A statement with a word dropped, doubled, swapped or replaced."""
    words = canonical(sql).split(" ")
    place = rng.randrange(len(words))
    way = rng.randrange(4)
    if way == 0:
        del words[place]
    elif way == 1:
        words.insert(place, words[place])
    elif way == 2:
        other = rng.randrange(len(words))
        words[place], words[other] = words[other], words[place]
    else:
        words[place] = rng.choice(STRANGE)
    return " ".join(words)


STRANGE = (
    *("SELECT", "FROM", "COUNT", "(", ")", ",", "*", "a", "b", "NOT", "AND", "DISTINCT", "random"),
    *("now", "MIN", "SAMPLE", "PIVOT", "LATERAL", "WINDOW", "RECURSIVE", "unnest", "1", "'x'", "="),
    *("md5", "~", "OVER", "FILTER", "INTO", "EXCLUDE", "hash", "ANTI", "NATURAL", "LIMIT", "NULL"),
)
