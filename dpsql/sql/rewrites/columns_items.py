"""Items with ``COLUMNS(...)``, and ``*`` beside aggregates: one item for every column of FROM.

What a table has is what the catalog says of it: its declared columns. Those that tell whose each
row is may be left out by name, and are shown by nothing but their own names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot import exp

from dpsql.catalog.catalog import PublicRows
from dpsql.errors import ProgrammingError, printable
from dpsql.logical.functions import has
from dpsql.records import dataclass
from dpsql.sql.cells.evaluate import Evaluator
from dpsql.sql.relations import (
    Field,
    FromElement,
    Relation,
    names_within,
    renamed,
    suggest,
)
from dpsql.sql.rewrites.star_items import of_star
from dpsql.sql.shell.language import Locate, check_scalar, refuse

_ASKED = "asked_of_names"
_GROUP = re.compile(r"\\([0-9])")
"""The marks in an alias for the name of a column, or for a part of it."""


@dataclass(frozen=True, slots=True, eq=False)
class ListedColumns:
    """The columns of an element of FROM; ``merged`` are those that USING shows once, before it."""

    alias: str
    fields: tuple[Field, ...]
    merged: frozenset[str]


def sources_of(
    found: Sequence[tuple[FromElement, Relation]], public: PublicRows, locate: Locate
) -> list[ListedColumns]:
    """The columns of what stands in FROM, each by its alias, in their order."""
    sources: list[ListedColumns] = []
    merged = {each.name.casefold() for e, _ in found if e.join for each in e.join.using}
    for element, relation in found:
        names = names_within(relation, public)
        alias = element.node.args.get("alias")
        given = alias if isinstance(alias, exp.TableAlias) else None
        shown = iter(renamed([name for name, hidden in names if not hidden], given, locate))
        listed = [(name if hidden else next(shown), hidden) for name, hidden in names]
        using = element.join.using if element.join else ()
        fields = []
        for name, hidden in listed:
            alone = len(found) == 1 or name.casefold() in merged
            fields.append(Field(name, _column(name, "" if alone else element.alias), hidden))
        shared = frozenset(each.name.casefold() for each in using)
        sources.append(ListedColumns(element.alias, tuple(fields), shared))
    return sources


def _column(name: str, table: str) -> exp.Column:
    quoted = exp.to_identifier(name, quoted=True)
    return exp.column(quoted, exp.to_identifier(table, quoted=True) if table else None)


def expand_column_lists(
    select: exp.Select, sources: Sequence[ListedColumns], evaluator: Evaluator, locate: Locate
) -> exp.Select:
    """A SELECT whose items and conditions name their columns one by one.

    Raises: ProgrammingError (E_UNKNOWN_COLUMN) where nothing has a name that is asked for;
    NotSupportedError (E_FUNCTION) for two different ``COLUMNS`` in one item.
    """
    spreading = _SpreadItems(sources, evaluator, locate)
    out = exp.Select(**select.args)
    out.meta.update(select.meta)
    items = [each for item in select.expressions for each in spreading.items(item)]
    out.set("expressions", items)
    where = select.args.get("where")
    if where is not None and where.find(exp.Columns) is not None:
        out.set("where", exp.Where(this=spreading.test(where.this)))
    return out


def columns_asked(
    asked: exp.Expr, names: Sequence[str], evaluator: Evaluator, locate: Locate
) -> list[exp.Expr]:
    """The columns of one table that ``*`` or the argument of ``COLUMNS`` asks for."""
    source = ListedColumns("", tuple(Field(name, _column(name, "")) for name in names), frozenset())
    fields = _SpreadItems([source], evaluator, locate).fields(asked)
    return [_at(_column(each.name, ""), asked) for each in fields]


class _SpreadItems:
    """Expansion of items such as ``*`` to columns of FROM."""

    def __init__(
        self, sources: Sequence[ListedColumns], evaluator: Evaluator, locate: Locate
    ) -> None:
        self.sources, self.evaluator, self.locate = sources, evaluator, locate

    def items(self, item: exp.Expr) -> Iterator[exp.Expr]:
        """An item as it is, or one for each column."""
        inner = item.unalias()
        if item.is_star or _is_pattern(inner):
            for each in self.fields(item if item.is_star else inner):
                yield exp.alias_(_at(each.value, inner), each.name, quoted=True, copy=False)
            return
        if item.find(exp.Columns) is not None:
            item = self.with_tests(item)
        inner, asked = item.unalias(), self.asked(item)
        if asked is None:
            yield item
            return
        fields = self.fields(asked)
        names = [each.name for each in fields]
        called = self.called(item.alias, asked, names) if isinstance(item, exp.Alias) else names
        for each, name in zip(fields, called, strict=True):
            yield exp.alias_(_filled(inner, each), name, quoted=True, copy=False)

    def test(self, node: exp.Expr) -> exp.Expr:
        """A condition that holds for every column."""
        asked = self.asked(node)
        if asked is None:  # it stands in a sub-query, which reads columns of its own
            return node
        tests = [exp.paren(_filled(node, each), copy=False) for each in self.fields(asked)]
        return exp.and_(*tests, copy=False)

    def with_tests(self, item: exp.Expr) -> exp.Expr:
        """A copy of an item with the conditions of FILTER written out."""
        copy = item.copy()
        for where in list(copy.find_all(exp.Where)):
            if where.find(exp.Columns) is not None and _is_own(where, copy):
                where.set("this", self.test(where.this))
        return copy

    def asked(self, node: exp.Expr) -> exp.Expr | None:
        """The argument of ``COLUMNS`` in an expression, None without any."""
        found = [each for each in node.find_all(exp.Columns) if _is_own(each, node)]
        if not found:
            return None
        other = next((each for each in found if each != found[0]), None)
        unpacked = next((each for each in found if each.args.get("unpack")), None)
        if other is not None or unpacked is not None:
            what = "two different COLUMNS() in one item" if other is not None else "*COLUMNS()"
            hint = "each column by its name: AVG(a), AVG(b)"
            refuse(other or unpacked, "E_FUNCTION", what, hint, self.locate)
        asked: exp.Expr = found[0].this
        return asked

    def fields(self, asked: exp.Expr) -> list[Field]:
        """The columns that are asked for. Raises: ProgrammingError (E_UNKNOWN_COLUMN)."""
        star = asked.this if isinstance(asked, exp.Column) else asked
        if isinstance(star, exp.Star):
            found = of_star(star, self.all(asked), lambda value: value.copy(), self.locate)
            shown = found = [each for each in found if not each.hidden]
        elif isinstance(asked, exp.Array):
            shown = self.all(asked)
            found = self.named(asked, shown)
        else:
            shown = [each for each in self.all(asked) if not each.hidden]
            kept = self.holds(asked, [each.name for each in shown])
            found = [each for each, is_kept in zip(shown, kept, strict=True) if is_kept]
        if not found:
            listed = ", ".join(printable(each.name) for each in shown if not each.hidden)
            raise ProgrammingError(
                "E_UNKNOWN_COLUMN",
                "there is no column of such a name",
                hint=f"columns: {listed}" if listed else "list the columns",
                span=self.locate(asked),
            )
        return found

    def all(self, asked: exp.Expr) -> list[Field]:
        """The columns of all tables, or of the table before the dot."""
        alias = asked.table.casefold() if isinstance(asked, exp.Column) else ""
        known = [each.alias for each in self.sources]
        if alias and alias not in known:
            raise ProgrammingError(
                "E_UNKNOWN_TABLE",
                f"there is no table {printable(alias)!r} in this statement",
                hint=suggest(alias, known, "tables"),
                span=self.locate(asked),
            )
        return [
            each
            for source in self.sources
            if alias in ("", source.alias)
            for each in source.fields
            if alias or each.name.casefold() not in source.merged
        ]

    def named(self, asked: exp.Array, fields: Sequence[Field]) -> list[Field]:
        """The columns of a list of names."""
        wanted = set()
        for each in asked.expressions:
            if not (isinstance(each, exp.Literal) and each.is_string):
                hint = "COLUMNS(['a', 'b']), COLUMNS('pattern') and COLUMNS(* EXCLUDE (a)) work"
                refuse(asked, "E_FUNCTION", "COLUMNS() of this", hint, self.locate)
            known = [field.name for field in fields]
            if each.name.casefold() not in map(str.casefold, known):
                raise ProgrammingError(
                    "E_UNKNOWN_COLUMN",
                    f"there is no column {printable(each.name)!r} among those of *",
                    hint=suggest(each.name, known, "columns"),
                    span=self.locate(asked),
                )
            wanted.add(each.name.casefold())
        return [each for each in fields if each.name.casefold() in wanted]

    def holds(self, asked: exp.Expr, names: list[str]) -> list[bool]:
        """Test of names by a pattern, or by a function of names."""
        name: exp.Expr = exp.column(_ASKED)
        if isinstance(asked, exp.Literal) and asked.is_string:
            test: exp.Expr = exp.RegexpLike(this=name, expression=asked.copy())
        elif isinstance(asked, exp.Lambda) and len(asked.expressions) == 1:
            parameter = asked.expressions[0].name.casefold()

            def filled(part: exp.Expr) -> exp.Expr:
                bare = part.this if isinstance(part, exp.Column) and not part.table else part
                same = isinstance(bare, exp.Identifier) and bare.name.casefold() == parameter
                return exp.column(_ASKED) if same else part

            test = asked.this.transform(filled)
        elif _is_pattern(asked):
            test = asked.copy()
            of = test.this if isinstance(test, exp.Not) else test
            of.set("this", name)
        else:
            hint = "COLUMNS(['a', 'b']), COLUMNS('pattern') and COLUMNS(* EXCLUDE (a)) work"
            refuse(asked, "E_FUNCTION", "COLUMNS() of this", hint, self.locate)
        check_scalar(test, self.locate)
        for column in test.find_all(exp.Column):
            if column.name != _ASKED:
                hint = "COLUMNS(lambda c: c LIKE 'a%')"
                refuse(asked, "E_FUNCTION", "COLUMNS() of other columns", hint, self.locate)
        given = {_ASKED: ("VARCHAR", names)}
        found = self.evaluator.combined.truth(test.sql("duckdb"), [given], {}, self.locate(asked))
        return [bool(each) for each in found]

    def called(self, alias: str, asked: exp.Expr, names: list[str]) -> list[str]:
        r"""The names of items: an alias with ``\0`` for the column, ``\1`` for a part of it."""
        parts: dict[str, list[str]] = {}
        for number in dict.fromkeys(_GROUP.findall(alias)):
            parts[number] = names
            if isinstance(asked, exp.Literal):
                sql = f"regexp_extract({_ASKED}, {asked.sql('duckdb')}, {number})"
                given = {_ASKED: ("VARCHAR", names)}
                parts[number] = self.evaluator.combined.values(sql, [given], {}, self.locate(asked))

        def filled(place: int) -> str:
            return _GROUP.sub(lambda found: str(parts[found[1]][place]), alias)

        return [filled(place) for place in range(len(names))]


def _is_pattern(node: exp.Expr) -> bool:
    """True if an item is ``* LIKE 'a%'``, or one like it."""
    inner = node.this if isinstance(node, exp.Not) else node
    return has(inner, "pattern") and isinstance(inner.this, exp.Star)


def _is_own(node: exp.Expr, top: exp.Expr) -> bool:
    """True if no sub-query lies between a node and one that it is within."""
    while node is not top:
        if isinstance(node, exp.Query) or node.parent is None:
            return False
        node = node.parent
    return not isinstance(node, exp.Query)


def _filled(node: exp.Expr, field: Field) -> exp.Expr:
    """A copy of an expression with a column instead of ``COLUMNS``."""
    copy = node.copy()
    for each in [copy, *copy.walk()]:
        if isinstance(each, exp.Columns) and _is_own(each, copy):
            value = _at(field.value, each)
            if not isinstance(value, exp.Column):
                value = exp.paren(value, copy=False)
            if each is copy:
                return value
            each.replace(value)
    return copy


def _at(value: exp.Expr, node: exp.Expr) -> exp.Expr:
    """A copy of a value that stands where a node does."""
    places = [part.meta for part in node.walk() if "start" in part.meta]
    copy = value.copy()
    if isinstance(copy, exp.Column) and places:
        start, end = min(at["start"] for at in places), max(at["end"] for at in places)
        copy.this.meta.update({"start": start, "end": end + isinstance(node, exp.Columns)})
    return copy
