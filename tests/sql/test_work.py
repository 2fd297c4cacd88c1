"""Work grows with the text of a statement, however its parts are nested: calls are counted."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, reduce
from types import FrameType

import pytest
from sqlglot import exp, parse_one

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.interrupts import Cancellation
from dpsql.sealed import Sealed
from dpsql.sql.derivative import MAX_TEXT, NoDerivative, gradient
from dpsql.sql.growth import bound_length
from dpsql.sql.lexemes import split_statements
from dpsql.sql.mentioned import Below
from dpsql.sql.parse import parse
from dpsql.sql.rewritten import any_of
from tests.support.forked import world

SIZE = 8
MORE = 2.7
"""Times as many calls for twice the text, at most: those of a power law of exponent 1.4."""


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with dpsql.connect(world(tmp_path_factory.mktemp("work"), "t"), epsilon=1) as opened:
        yield opened


def compiled(connection: Connection, sql: str) -> None:
    connection.engine.compile([parse(each) for each in split_statements(sql)])


def calls(work: Callable[[], object]) -> int:
    """How many functions of Python work calls; what it is refused for is no matter."""
    count = 0

    def counted(frame: FrameType, event: str, of: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    except dpsql.Error:
        pass
    finally:
        sys.setprofile(before)
    return count


def work_of(connection: Connection, text: Callable[[int], str], size: int) -> list[int]:
    """Calls for a text of a size, and for one of twice the size."""
    compiled_before(connection, text(size - 1))  # what is read once, and what is imported
    return [calls(partial(compiled, connection, text(each))) for each in (size, 2 * size)]


def compiled_before(connection: Connection, sql: str) -> None:
    with suppress(dpsql.Error):
        compiled(connection, sql)


def counted(number: int) -> str:
    return f"SELECT {number} AS i, COUNT(*) AS n FROM t WHERE age > {number % 9}"


def kept(number: int) -> str:
    return f"SELECT who, age FROM t WHERE age > {number % 9}"


def left(size: int) -> str:
    return reduce(lambda s, k: f"({s} UNION ALL {counted(k)})", range(1, size), f"({counted(0)})")


def balanced(size: int, first: int = 0) -> str:
    if size == 1:
        return f"({counted(first)})"
    half = size // 2
    return f"({balanced(half, first)} UNION ALL {balanced(size - half, first + half)})"


def of_rows(size: int) -> str:
    united = reduce(lambda s, k: f"({s} UNION ALL {kept(k)})", range(1, size), f"({kept(0)})")
    return f"SELECT age, COUNT(*) FROM {united} AS u GROUP BY age"


def chained(size: int, first: str, step: str, last: str) -> str:
    steps = ", ".join(f"c{k} AS ({step.format(f'c{k - 1}')})" for k in range(1, size))
    return f"WITH c0 AS ({first}), {steps} {last.format(f'c{size - 1}')}"


GROUPED = "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex"
LATER = "EXISTS (SELECT 1 FROM t AS o WHERE o.who = t.who AND o.age < t.age AND o.age > {})"
GROWING: dict[str, Callable[[int], str]] = {
    "unions, the first nested": left,
    "unions, all nested": balanced,
    "unions of rows": of_rows,
    "sub-queries in FROM": lambda n: chained(
        3 * n, GROUPED, "SELECT sex, n + 1 AS n FROM {}", "SELECT * FROM {}"
    ),
    "groups joined with themselves": lambda n: chained(
        n, GROUPED, "SELECT a.sex, a.n + b.n AS n FROM {0} a JOIN {0} b USING (sex)", "FROM {}"
    ),
    "one row beside itself": lambda n: chained(
        n,
        "SELECT COUNT(*) AS n FROM t",
        "SELECT a.n + b.n AS n FROM {0} a, {0} b",
        "FROM {}",
    ),
    "rows compared with others": lambda n: (
        "SELECT COUNT(*) FROM t WHERE " + " AND ".join(LATER.format(k) for k in range(n))
    ),
    "rows picked by sub-queries": lambda n: (
        "SELECT COUNT(*) FROM t WHERE "
        + " AND ".join(f"who IN (SELECT who FROM t WHERE age > {k % 9})" for k in range(n))
    ),
    "pairs in a list": lambda n: (
        "SELECT COUNT(*) FROM t WHERE (age, sex) IN ("
        + ", ".join(f"({k % 10}, 'f')" for k in range(20 * n))
        + ")"
    ),
    "sums of answers": lambda n: f"SELECT COUNT(*){' + 1' * (15 * n)} FROM t",
    "sums beside a key": lambda n: f"SELECT age{' + 1' * (15 * n)}, COUNT(*) FROM t GROUP BY age",
    "products of answers": lambda n: f"SELECT COUNT(*){' * COUNT(*)' * (10 * n)} FROM t",
}


@pytest.mark.parametrize("kind", GROWING)
def test_twice_the_text_takes_about_twice_the_calls(connection: Connection, kind: str) -> None:
    few, many = work_of(connection, GROWING[kind], SIZE)
    assert many < MORE * few


TWICE = {
    "IN": "SELECT who, age FROM {0} WHERE who IN (SELECT who FROM {0} WHERE age = 1)",
    "UNION ALL": "SELECT * FROM {0} UNION ALL SELECT * FROM {0}",
    "UNION": "SELECT * FROM {0} UNION SELECT * FROM {0}",
    "groups": "SELECT a.who, SUM(b.age) AS age FROM {0} a JOIN {0} b USING (who) GROUP BY a.who",
}


@pytest.mark.parametrize("kind", TWICE)
def test_rows_that_double_with_every_name_are_refused_at_once(
    connection: Connection, kind: str
) -> None:
    def text(size: int) -> str:
        return chained(size, "SELECT who, age FROM t", TWICE[kind], "SELECT COUNT(*) FROM {}")

    with pytest.raises(dpsql.ProgrammingError) as caught:
        compiled(connection, text(40))
    assert caught.value.code in ("E_TOO_COMPLEX", "E_TOO_LARGE")
    assert caught.value.hint
    few, many = work_of(connection, text, 16)  # where each name doubles, 65,536 times as many
    assert many < 2 * MORE * few


def test_a_chain_of_very_many_names_is_refused(connection: Connection) -> None:
    step = "SELECT who, age FROM {} WHERE who IN (SELECT who FROM t WHERE age > 1)"
    sql = chained(200, "SELECT who, age FROM t", step, "SELECT COUNT(*) FROM {}")
    with pytest.raises(dpsql.ProgrammingError) as caught:
        compiled(connection, sql)
    assert caught.value.code == "E_TOO_COMPLEX"


def divided(levels: int) -> str:
    return "(COUNT(*) / " * levels + "COUNT(*)" + ")" * levels


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {divided(30)} FROM t",
        f"SELECT {divided(30).replace('COUNT(*)', 'n')} FROM (SELECT COUNT(*) AS n FROM t) AS q",
        f"SELECT COUNT(*) FROM t WHERE {'NULLIF(' * 30}age{', 1)' * 30} > 1",
        "SELECT COUNT(*) AS a0, "
        + ", ".join(f"1 / (1 + a{k}) AS a{k + 1}" for k in range(20))
        + " FROM t",
    ],
)
def test_what_doubles_in_duckdb_is_refused_before_it_is_asked(
    connection: Connection, sql: str
) -> None:
    with pytest.raises(dpsql.ProgrammingError) as caught:
        compiled(connection, sql)
    assert caught.value.code == "E_TOO_COMPLEX"
    assert "each level doubles" in str(caught.value)


def test_a_few_ratios_in_divisors_are_worked_out(connection: Connection) -> None:
    cursor = connection.execute(f"SELECT {divided(2)} AS x, COUNT(*) AS n FROM t")
    ratio, count = cursor.fetchall()[0]
    assert ratio == pytest.approx(count)
    assert cursor.stddev is not None
    assert cursor.stddev[0] == pytest.approx(cursor.stddev[1])


@pytest.mark.parametrize("size", [51, 400])
def test_many_subscripts_are_refused_before_they_are_parsed(size: int) -> None:
    with pytest.raises(dpsql.ProgrammingError) as caught:
        parse(split_statements(f"SELECT COUNT(*) FROM t WHERE sex{'[1:2]' * (size + 1)} = 'f'")[0])
    assert caught.value.code == "E_TOO_COMPLEX"


def test_what_a_text_grows_to_is_bounded_by_one_look_at_every_part() -> None:
    text = "a"
    found = []
    for _ in range(20):
        text = f"REPLACE({text}, 'b', 'cd')"
        found.append(calls(partial(bound_length, parse_one(text), 10)))
    assert found[19] < MORE * found[9]


def test_conditions_are_joined_by_or_in_the_order_written_and_not_deep() -> None:
    tests = [parse_one(f"a = {k} AND b") for k in range(1000)]
    tree = any_of(tests)
    assert tree.sql() == " OR ".join(f"(a = {k} AND b)" for k in range(1000))
    depth, level = 0, [tree]
    while level := [each for node in level for each in node.iter_expressions()]:
        depth += 1
    assert depth < 20


def test_what_nodes_mention_is_what_is_found_below_them() -> None:
    tree = parse_one("CASE WHEN a > T.b THEN SUM(A) ELSE (SELECT 1) + c END")
    below = Below()
    for node in tree.walk():
        found = below.of(node)
        columns = {(c.table.casefold(), c.name.casefold()) for c in node.find_all(exp.Column)}
        assert set(found.columns) == columns
        assert found.aggregates == (node.find(exp.AggFunc) is not None)
        assert found.queries == (node.find(exp.Query) is not None)


def test_slopes_of_a_long_product_are_not_known() -> None:
    short, long = (parse_one(" * ".join(f"a{k}" for k in range(n))) for n in (20, 200))
    assert sum(map(len, gradient(short).values())) < MAX_TEXT
    with pytest.raises(NoDerivative):
        gradient(long)


def test_a_table_without_rows_is_made_once_and_one_with_rows_anew() -> None:
    sealed = Sealed()
    sealed.fill("r", {"a": ("BIGINT", ())})
    sealed.run("INSERT INTO r VALUES (1)")
    sealed.fill("r", {"a": ("BIGINT", ())})
    assert sealed.run("SELECT * FROM r") == [(1,)]
    sealed.fill("r", {"a": ("BIGINT", (2,))})
    sealed.fill("r", {"a": ("BIGINT", ())})
    assert sealed.run("SELECT * FROM r") == []
    sealed.fill("r", {"a": ("VARCHAR", ())})
    assert sealed.query("SELECT a FROM r")[0] == ("VARCHAR",)
    sealed.close()


LONG: dict[str, str] = {
    **{kind: text(SIZE) for kind, text in GROWING.items()},
    "a sum of many products": f"SELECT SUM({' * '.join(['(age + 1)'] * 40)}) FROM t",
    "CASE in CASE": "SELECT SUM("
    + "CASE WHEN age > 1 THEN 1 ELSE " * 15
    + "age"
    + " END" * 15
    + ") FROM t",
    "tuples in a list": "SELECT COUNT(*) FROM t WHERE (age, sex) IN ("
    + ", ".join(f"({k}, 'f')" for k in range(50))
    + ")",
    "public rows": "SELECT COUNT(*) FROM t JOIN (VALUES "
    + ", ".join(f"({k}, 'f')" for k in range(50))
    + ") AS p(k, s) ON t.age = p.k AND t.sex = p.s",
    "many aggregates": "SELECT "
    + ", ".join(f"COUNT(*) FILTER (WHERE age > {k % 9})" for k in range(30))
    + " FROM t",
}
PATIENCE, PER_CHARACTER = 20_000, 250
"""Calls of Python that a statement may go on after somebody ended it: what parses it looks for
nothing, and takes a hundred a character."""


class Watched(Cancellation):
    """One that notes where it is asked whether anybody has asked for it."""

    def __init__(self, calls: Callable[[], int]) -> None:
        super().__init__()
        self.calls = calls
        self.looks: list[int] = []

    def check(self) -> None:
        self.looks.append(self.calls())
        super().check()


@pytest.mark.parametrize("kind", LONG)
def test_all_work_on_a_statement_looks_whether_it_is_to_end(
    connection: Connection, kind: str
) -> None:
    compiled_before(connection, LONG[kind].replace("1", "2", 1))
    count = 0

    def counted(frame: FrameType, event: str, of: object) -> None:
        nonlocal count
        count += event == "call"

    wish = Watched(lambda: count)
    sys.setprofile(counted)
    try:
        with wish:
            compiled_before(connection, LONG[kind])
    finally:
        sys.setprofile(None)
    looks = [0, *wish.looks, count]
    waits = [after - before for before, after in itertools.pairwise(looks)]
    assert max(waits) < PATIENCE + PER_CHARACTER * len(LONG[kind]), sorted(waits)[-3:]
    assert max(sorted(waits)[:-2], default=0) < PATIENCE + 50 * len(LONG[kind])


def test_what_duckdb_evaluates_ends_when_another_thread_asks_for_it() -> None:
    sealed, wish = Sealed(), Cancellation()
    sealed.run("SELECT 1")
    timer = threading.Timer(0.2, wish.ask)
    timer.start()
    with wish, pytest.raises(KeyboardInterrupt):
        sealed.run("SELECT count(*) FROM range(10000000000) a(i) WHERE md5(i::VARCHAR) = ''")
    timer.join()
    assert sealed.run("SELECT 2") == [(2,)]
    sealed.close()
