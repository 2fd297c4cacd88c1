"""Facts of the table of functions, beside what DuckDB makes of hostile values.

Every function is called with all combinations of the kinds of arguments that DuckDB takes, NULL
among them. What is said must hold; of NULL, of types and of the order of values, what holds must be
said, too: two places that ask about a function are then told the same.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import math
import random
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlglot import exp, parse_one

import dpsql
from dpsql.logical import functions
from dpsql.logical.functions import TABLE, Function
from dpsql.sealed import EvaluationError, SealedConnection
from dpsql.sql.shell.derivative import gradient
from dpsql.sql.text.growth import bound_length
from tests.support.effort import first_seed
from tests.support.oracle import ROOT, open_world
from tests.support.seam import zero_noise

VALUES: dict[str, tuple[str, ...]] = {
    "DOUBLE": (
        *("-1e300", "-100.0", "-2.5", "-1.0", "-0.5", "0.0", "1e-300", "0.3", "1.0", "2.5", "7.0"),
        "1e300",
    ),
    "BIGINT": ("-100", "-1", "0", "1", "2", "7", "60", "4611686018427387904"),
    "INTEGER": ("-3", "0", "1", "2", "9"),
    "VARCHAR": ("", "a", "Bc", "é", "12", "2024-01-31", "%Y", "abcabcab"),
    "DATE": ("0001-01-01", "1999-12-31", "2024-01-01", "2024-02-29"),
    "TIMESTAMP": ("1999-12-31 00:00:00", "2024-01-01 12:30:00", "2024-02-29 23:59:59"),
    "TIME": ("00:00:00", "12:30:15"),
    "BOOLEAN": ("false", "true"),
    "INTERVAL": ("-2 months", "1 day"),
}
MIXED = (
    *(("VARCHAR", "INTEGER"), ("VARCHAR", "BIGINT"), ("DATE", "INTERVAL"), ("TIME", "INTERVAL")),
    *(("TIMESTAMP", "INTERVAL"), ("INTERVAL", "DATE"), ("INTERVAL", "TIMESTAMP")),
    *(("DOUBLE", "INTEGER"), ("BIGINT", "DOUBLE"), ("BOOLEAN", "BIGINT"), ("DATE", "VARCHAR")),
)
THREE = (
    *("VARCHAR INTEGER VARCHAR", "VARCHAR VARCHAR VARCHAR", "VARCHAR VARCHAR INTEGER"),
    *("VARCHAR INTEGER INTEGER", "BOOLEAN BIGINT BIGINT", "BOOLEAN VARCHAR VARCHAR"),
    *("DOUBLE DOUBLE DOUBLE", "DATE DATE DATE", "BIGINT BIGINT BIGINT"),
)
WRITTEN: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Cast: tuple(f"CAST(x0 AS {each})" for each in ("DOUBLE", "INTEGER", "VARCHAR", "DATE")),
    exp.TryCast: ("TRY_CAST(x0 AS DOUBLE)", "TRY_CAST(x0 AS TINYINT)", "TRY_CAST(x0 AS DATE)"),
    exp.Case: ("CASE WHEN x0 THEN x1 ELSE x2 END",),
    exp.If: ("IF(x0, x1, x2)",),
    exp.In: ("x0 IN (x1, x2)",),
    exp.Is: ("x0 IS NULL",),
    exp.Extract: ("EXTRACT(month FROM x0)", "EXTRACT(epoch FROM x0)"),
    exp.TimestampTrunc: ("date_trunc('month', x0)",),
    exp.DateTrunc: ("date_trunc('month', x0)",),
    exp.DateDiff: ("date_diff('month', x0, x1)", "date_diff('day', x0, x1)"),
    exp.DateFromParts: ("make_date(x0, x1, x2)",),
    exp.DateBin: ("time_bucket(x0, x1)", "time_bucket(INTERVAL 3 DAY, x0)"),
    exp.TimeToStr: ("strftime(x0, '%A, %Y')", "strftime(x0, '%c %x')"),
    exp.StrToTime: ("strptime(x0, '%Y-%m-%d')",),
    exp.Log: ("log(x0)", "log(x0, x1)"),
    exp.Round: ("round(x0)", "round(x0, 1)", "round(x0, -1)"),
    exp.Escape: ("x0 LIKE x1 ESCAPE '!'",),
    exp.RegexpExtract: ("regexp_extract(x0, x1)",),
    exp.RegexpReplace: ("regexp_replace(x0, x1, x2)", r"regexp_replace(x0, '(.)', '\1\1', 'g')"),
    exp.Trim: ("trim(x0)", "trim(x0, x1)"),
    exp.Substring: ("substring(x0, x1)", "substring(x0, x1, x2)"),
    exp.Replace: ("replace(x0, x1, x2)",),
    exp.SplitPart: ("split_part(x0, x1, x2)",),
    exp.Format: ("format('{}-{:>20}', x0, x1)", "format('{}', x0)"),
    exp.Concat: ("concat(x0, x1)",),
    exp.ConcatWs: ("concat_ws(x0, x1, x2)",),
    exp.Coalesce: ("coalesce(x0, x1)",),
    exp.Greatest: ("greatest(x0, x1)",),
    exp.Least: ("least(x0, x1)",),
    exp.Factorial: ("factorial(x0)",),
    exp.Chr: ("chr(x0)",),
    exp.Levenshtein: ("levenshtein(x0, x1)",),
    exp.Pad: ("lpad(x0, 12, x1)", "rpad(x0, 3, x1)"),
    exp.Repeat: ("repeat(x0, 4)",),
    exp.Bracket: ("x0[x1]",),
    exp.Slice: ("x0[x1:x2]",),
    exp.Initcap: ("initcap(x0)",),
}
"""Calls of what is not written with its arguments one after another."""
PLACES = (
    *(exp.DataType, exp.DataTypeParam, exp.Interval, exp.Var, exp.Column, exp.Identifier),
    *(exp.Literal, exp.Boolean, exp.Null, exp.Pi),
)
"""Entries without arguments to be called with."""
ROUNDED = {"round_even": "(x0, 1)", "roundbankers": "(x0, 1)", "printf": "('%s|%40s', x0, x1)"}
AT_ZERO = (exp.Div, exp.Mod)
"""Operators of which 0 / 0 is NaN: compared as DuckDB compares it, and no other value is."""

Row = tuple[Any, tuple[Any, ...]]
"""Calls made of arguments, and these as texts."""


def calls(entry: Function) -> Iterator[str]:
    """The calls of a function over x0, x1 and x2."""
    if isinstance(entry.kind, str):
        own = ROUNDED.get(entry.kind)
        arguments = [own] if own else ["(x0)", "(x0, x1)"]
        yield from (f"{entry.kind}{each}" for each in arguments)
    elif entry.kind in WRITTEN:
        yield from WRITTEN[entry.kind]
    elif entry.kind not in PLACES:
        needed = [key for key, must in entry.kind.arg_types.items() if must]
        parts = {key: exp.column(f"x{place}") for place, key in enumerate(needed)}
        yield entry.kind(**parts).sql("duckdb")


def name_of(entry: Function) -> str:
    return entry.kind if isinstance(entry.kind, str) else entry.kind.__name__


def combinations(count: int) -> Iterator[tuple[str, ...]]:
    if count == 1:
        yield from ((kind,) for kind in VALUES)
    elif count == 2:
        yield from (*((kind, kind) for kind in VALUES), *MIXED)
    else:
        yield from (tuple(each.split()) for each in THREE)


@cache
def sealed() -> SealedConnection:
    """A database with a table for every combination of kinds of arguments."""
    database = SealedConnection()
    for count in (1, 2, 3):
        for kinds in combinations(count):
            lists = []
            for place, kind in enumerate(kinds):
                values = ", ".join(f"'{each}'" for each in VALUES[kind])
                lists.append(f"(SELECT unnest([{values}, NULL])::{kind} AS x{place})")
            source = ", ".join(lists)
            database.run(f"CREATE TEMP TABLE {'_'.join(kinds)} AS SELECT * FROM {source}")
    return database


def count_of(text: str) -> int:
    return 1 + max(int(each) for each in re.findall(r"\bx(\d)", text))


@cache
def made(text: str) -> dict[tuple[str, ...], tuple[str, list[Row]]]:
    """The type and the values of a call, by the kinds of arguments that DuckDB takes.

    What is an error is left out, and so is what it makes of numbers that are none.
    """
    count, found = count_of(text), {}
    for kinds in combinations(count):
        table, names = "_".join(kinds), [f"x{place}" for place in range(count)]
        shown = ", ".join(f"CAST({name} AS VARCHAR)" for name in names)
        try:
            rows = sealed().run(f"SELECT TRY({text}), typeof({text}), {shown} FROM {table}")
        except EvaluationError:
            continue
        values: list[Row] = []
        for row in rows:
            if row[0] is not None or None in row[2:] or not is_error(text, kinds, row[2:]):
                values.append((row[0], row[2:]))
        found[kinds] = rows[0][1], values
    return found


def is_error(text: str, kinds: tuple[str, ...], values: tuple[str, ...]) -> bool:
    """Say whether a call with some values is an error, and not NULL."""
    given = ", ".join(
        f"CAST('{value}' AS {kind}) AS x{place}"
        for place, (value, kind) in enumerate(zip(values, kinds, strict=True))
    )
    try:
        sealed().run(f"SELECT {text} FROM (SELECT {given})")
    except EvaluationError:
        return True
    return False


CALLED = {entry: tuple(calls(entry)) for entry in TABLE.values() if "rows" in entry.facts}
EACH = [each for each, texts in CALLED.items() if texts]
INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"}
RISING = ("DOUBLE", "BIGINT", "DATE", "TIMESTAMP")
"""Kinds of which the values are listed from the least on."""


def is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


@pytest.mark.parametrize("entry", EACH, ids=name_of)
def test_what_is_made_of_null_is_what_is_said(entry: Function) -> None:
    kept: set[tuple[int, int]] = set()
    for text in CALLED[entry]:
        for _, rows in made(text).values():
            for value, given in rows:
                if value is not None and None in given:
                    kept.add((given[0] is None, any(each is not None for each in given)))
    held = {
        "strict": not kept,
        "strict_first": not any(first for first, _ in kept),
        "null_all": not any(first and not known for first, known in kept),
    }
    said = [name for name in held if name in entry.facts]
    assert said == [name for name, holds in held.items() if holds][:1]


@pytest.mark.parametrize("entry", EACH, ids=name_of)
def test_what_has_a_value_is_what_is_said(entry: Function) -> None:
    rows = [
        (value, given)
        for text in CALLED[entry]
        for _, found in made(text).values()
        for value, given in found
        if None not in given
    ]
    nan = [given for value, given in rows if is_nan(value)]
    if entry.kind in AT_ZERO:
        nan = [given for given in nan if float(given[1] or 1) != 0]
    assert bool(nan) is ("partial" in entry.facts)
    assert not any(value is None for value, _ in rows) or "total" not in entry.facts


@pytest.mark.parametrize("entry", EACH, ids=name_of)
def test_what_is_an_integer_is_what_is_said(entry: Function) -> None:
    found = [(kinds, kind) for text in CALLED[entry] for kinds, (kind, _) in made(text).items()]
    for kinds, kind in found:
        is_all = "whole_all" in entry.facts and set(kinds) <= INTEGERS
        is_first = "whole_first" in entry.facts and kinds[0] in INTEGERS
        if "whole" in entry.facts or is_all or is_first:
            assert kind in INTEGERS, kinds
    assert (
        not found
        or any(kind not in INTEGERS for _, kind in found)
        or "whole" in entry.facts
        or "integral" in entry.facts
    )


@pytest.mark.parametrize("entry", EACH, ids=name_of)
def test_what_never_turns_is_what_is_said(entry: Function) -> None:
    turns = {place for text in CALLED[entry] for place in turning(text)}
    count = max(map(count_of, CALLED[entry]))
    if "monotone" in entry.facts:
        assert not turns
    elif "monotone_first" in entry.facts:
        assert 0 not in turns
    elif count == 1 and moved(CALLED[entry]):
        assert turns


def moved(texts: tuple[str, ...]) -> bool:
    """Say whether calls are numbers or times, of numbers or times."""
    found = [(kinds[0], kind) for text in texts for kinds, (kind, _) in made(text).items()]
    ordered = {*INTEGERS, *RISING}
    return bool(found) and all(each[0] in ordered and each[1] in ordered for each in found)


def turning(text: str) -> Iterator[int]:
    """The arguments in which a call rises and falls, while the others stay."""
    for kinds, (kind, rows) in made(text).items():
        if kind not in {*INTEGERS, *RISING}:
            continue
        for place in range(len(kinds)):
            if kinds[place] not in RISING:
                continue
            lines: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
            for value, given in rows:
                if None not in given and not is_nan(value) and not isinstance(value, str):
                    rest = given[:place] + given[place + 1 :]
                    lines.setdefault(rest, []).append((order(kinds[place], given[place]), value))
            for line in lines.values():
                values = [value for _, value in sorted(line, key=lambda each: each[0])]
                low = min((value for value in values if value is not None), default=None)
                known = [(value is not None, low if value is None else value) for value in values]
                steps = list(itertools.pairwise(known))  # NULL is below all
                if any(a < b for a, b in steps) and any(a > b for a, b in steps):
                    yield place


def order(kind: str, text: str) -> str | float:
    return text if kind in ("DATE", "TIMESTAMP") else float(text)


@pytest.mark.parametrize("entry", [each for each in EACH if "steps" in each.facts], ids=name_of)
def test_what_has_few_values_is_said_of_few(entry: Function) -> None:
    own = {"Cast": "CAST(x0 AS INTEGER)", "IntDiv": "CAST(x0 AS BIGINT) // 2"}
    text = own.get(name_of(entry), CALLED[entry][0])
    numbers = "SELECT i / 100 AS x0, 1.0::DOUBLE AS x1 FROM range(-500, 500) r(i)"
    ((count,),) = sealed().run(f"SELECT count(DISTINCT {text}) FROM ({numbers})")
    assert count <= 12


@pytest.mark.parametrize("entry", [each for each in EACH if "choice" in each.facts], ids=name_of)
def test_what_chooses_is_one_of_its_arguments(entry: Function) -> None:
    for text in CALLED[entry]:
        for kinds, (_, rows) in made(text).items():
            if len(set(kinds[-2:])) == 1:
                shown = {given: value for value, given in rows}
                for given, value in shown.items():
                    known = [each for each in given if each is not None]
                    assert value is None or any(same(value, each) for each in known)


def same(value: object, text: str) -> bool:
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, int | float):
        with contextlib.suppress(TypeError, ValueError):
            return float(text) == value
        return False
    if isinstance(value, dt.timedelta):
        return True
    return text == str(value)


@pytest.mark.parametrize("entry", [each for each in EACH if each.part], ids=name_of)
def test_a_part_of_the_calendar_decides(entry: Function) -> None:
    text, part = CALLED[entry][0], entry.part
    assert part is not None
    cut = text.replace("x0", f"date_trunc('{part}', x0)")
    asked = f"SELECT {text}, {cut} FROM ({MOMENTS})"
    assert all(a == b for a, b in sealed().run(asked))
    finer = {"day": "month", "week": "month", "month": "quarter", "quarter": "year"}
    finer |= {"hour": "day", "minute": "hour", "second": "minute"}
    rows = sealed().run(asked.replace(f"'{part}'", f"'{finer[part]}'"))
    assert any(a != b for a, b in rows), "it is told by less"


MOMENTS = (
    "SELECT TIMESTAMP '2019-12-25 21:00:07' + i * INTERVAL 93599 SECOND AS x0 FROM range(900) r(i)"
)


@pytest.mark.parametrize("entry", EACH, ids=name_of)
def test_a_day_is_read_as_its_beginning(entry: Function) -> None:
    if "reads_days" not in entry.facts:
        return
    for text in CALLED[entry]:
        days = made(text).get(("DATE",)) or made(text).get(("DATE", "DATE"))
        if days is not None:
            names = ", ".join(f"x{place}" for place in range(count_of(text)))
            table = "_".join(["DATE"] * count_of(text))
            instant = re.sub(r"\bx(\d)", r"(x\1::TIMESTAMP)", text)
            test = f"({text}) IS DISTINCT FROM ({instant})"
            assert sealed().run(f"SELECT {names} FROM {table} WHERE {test}") == []


@pytest.mark.parametrize("entry", EACH, ids=name_of)
def test_texts_are_no_longer_than_is_said(entry: Function) -> None:
    for text in CALLED[entry]:
        texts = [found for kind, found in made(text).values() if kind == "VARCHAR"]
        tree = parse_one(text, read="duckdb") if texts else exp.null()
        for rows in texts:
            for value, given in rows:
                widest = max(functions.NUMBER, *(len(each or "") for each in given))
                assert len(str(value or "")) <= bound_length(tree, widest)
                if "grows" not in entry.facts:
                    assert len(str(value or "")) <= max(sum(len(e or "") for e in given), 64)


@pytest.mark.parametrize("entry", [each for each in TABLE.values() if each.slopes], ids=name_of)
def test_slopes_are_differences(entry: Function) -> None:
    rng, kind = random.Random(first_seed(3)), entry.kind
    assert not isinstance(kind, str)
    keys = [key for key in ("this", "expression", "expressions") if key in entry.arguments]
    numbers = {f"a{place}": rng.uniform(1.0, 9.0) for place in range(len(keys))}
    several: dict[str, Any] = {key: exp.column(f"a{place}") for place, key in enumerate(keys)}
    if "expressions" in several:  # others that move have no slope
        beyond = "99" if kind is exp.Least else "0.5"
        several["expressions"] = [exp.Literal.number(beyond)]
        numbers.pop("a1")
    tree = kind(**several)

    def value(sql: str, point: dict[str, float]) -> float:
        items = ", ".join(f"{number!r}::DOUBLE AS {name}" for name, number in point.items())
        return float(sealed().run(f"SELECT {sql} FROM (SELECT {items})")[0][0])

    for place, slope in gradient(tree).items():
        near = [{**numbers, f"a{place}": numbers[f"a{place}"] + h} for h in (1e-5, -1e-5)]
        high, low = (value(tree.sql("duckdb"), point) for point in near)
        assert value(slope, numbers) == pytest.approx((high - low) / 2e-5, rel=1e-6, abs=1e-6)


AGGREGATED = [each for each in TABLE.values() if "groups" in each.facts]


def aggregated(entry: Function) -> str:
    """A call of an aggregate over x and y."""
    if isinstance(entry.kind, str):
        return f"{entry.kind}(x)"
    share = exp.Literal.number("0.25") if "rank" in entry.facts else exp.column("y")
    takes_two = "expression" in entry.arguments
    tree = entry.kind(this=exp.column("x"), **({"expression": share} if takes_two else {}))
    return tree.sql("duckdb")


@pytest.mark.parametrize("entry", AGGREGATED, ids=name_of)
def test_aggregates_are_what_is_said(entry: Function) -> None:
    rng = random.Random(first_seed(4))
    is_logical = entry.kind in (exp.LogicalAnd, exp.LogicalOr, exp.CountIf)
    text, drawn = aggregated(entry), ["true", "false"] if is_logical else list("123456789")
    some, more = ([(rng.choice(drawn), rng.choice("12345")) for _ in range(7)] for _ in range(2))

    def over(rows: list[tuple[str, str]], asked: str = text) -> Any:
        listed = ", ".join(f"({number}, {a}, {b})" for number, (a, b) in enumerate(rows))
        return sealed().run(f"SELECT {asked} FROM (VALUES {listed}) v(i, x, y)")[0][0]

    if "skips" in entry.facts:
        absent = [("NULL", "3"), *([("4", "NULL")] if "paired" in entry.facts else [])]
        assert over([*absent, *some, *absent]) == over(some)
    if "linear" in entry.facts:
        assert over([*some, *more]) == over(some) + over(more)
    if {"whole", "whole_first"} & entry.facts:
        assert over(some, f"typeof({text})") in INTEGERS
    if "root" in entry.facts:
        square = over(some, text.replace("STDDEV", "VAR" if "_" in text else "VARIANCE"))
        assert square == pytest.approx(over(some) ** 2)


def test_functions_are_deterministic() -> None:
    asked = "SELECT function_name, stability FROM duckdb_functions() WHERE function_type = 'scalar'"
    macros = "SELECT function_name FROM duckdb_functions() WHERE function_type = 'macro'"
    with duckdb.connect() as database:
        known = database.execute(asked).fetchall()
        plain = {row[0].lower() for row in database.execute(macros).fetchall()}
    steady = {name.lower() for name, stability in known if stability == "CONSISTENT"}
    varying = {name.lower() for name, stability in known if stability != "CONSISTENT"}
    named = {each.kind for each in CALLED if isinstance(each.kind, str)}
    assert steady | plain >= named
    assert not named & (varying | functions.RANDOM)


ADDED = functions.Function(
    "lgamma", frozenset(), frozenset({"rows", "strict", "total", "monotone_first"})
)
ROW = (3, "x", True, None, 1, 0.5, 1.0, 2.0, 3, 1.0)
STATEMENTS = (
    "SELECT COUNT(*) FROM t WHERE lgamma(a + 1) > 1",
    "SELECT lgamma(a + 1), COUNT(*) FROM t GROUP BY 1",
    "SELECT SUM(lgamma(a + 1)) FROM t",
    "SELECT a, lgamma(COUNT(*) + 2) FROM t GROUP BY a HAVING lgamma(COUNT(*) + 2) > -9",
    "EXPLAIN SELECT COUNT(*) FROM t WHERE lgamma(a + 1) > 1",
)


def test_one_entry_is_a_whole_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rows, keys, sums, answers, EXPLAIN, hints and the reference all know it, and none before."""
    listed = runpy.run_path(str(ROOT / "docs" / "make.py"))["functions"]
    with zero_noise(), open_world(tmp_path, [ROW] * 3) as (connection, database):
        for sql in STATEMENTS:
            with pytest.raises(dpsql.NotSupportedError, match="lgamma"):
                connection.execute(sql)
        assert "`lgamma`" not in "".join(listed())
        monkeypatch.setitem(TABLE, ADDED.kind, ADDED)
        for sql in STATEMENTS[:3]:
            found = [row for row in connection.execute(sql).fetchall() if row[-1]]
            assert [*map(pytest.approx, found)] == database.execute(sql).fetchall()
        for sql in STATEMENTS[3:]:
            assert connection.execute(sql).fetchall()
        with pytest.raises(dpsql.NotSupportedError) as caught:
            connection.execute("SELECT COUNT(*) FROM t WHERE lgama(a) > 2")
        assert "did you mean lgamma()?" in str(caught.value.hint)
        assert "`lgamma`" in "".join(listed())


def test_what_has_no_entry_is_no_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sql = "SELECT COUNT(*) FROM t WHERE CBRT(n) < CBRT({})"
    with zero_noise(), open_world(tmp_path, []) as (connection, _):
        assert connection.execute(sql.format(2)).fetchall()  # bins: it never turns
        monkeypatch.delitem(TABLE, exp.Cbrt)
        with pytest.raises(dpsql.NotSupportedError, match="CBRT"):
            connection.execute(sql.format(0))
        assert "cbrt" not in functions.names("rows")
