"""Work grows with the text of a statement, however its parts are nested: calls are counted."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from types import FrameType

import duckdb
import pytest
from sqlglot import exp, parse_one

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.interrupts import Cancellation
from dpsql.sealed import SealedConnection, _Clock
from dpsql.sql.cells.column_mentions import MentionCache
from dpsql.sql.cells.evaluate import MAX_LINKS
from dpsql.sql.rewrites.tree_parts import any_of
from dpsql.sql.shell.derivative import MAX_TEXT, NoDerivative, gradient
from dpsql.sql.text.cycle_collector import interruptible_anywhere
from dpsql.sql.text.growth import bound_length
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.support.effort import IS_LARGE, effort
from tests.support.forked import world

SIZE = 8
MORE = 2.7
"""Times as many calls for twice the text, at most: those of a power law of exponent 1.4."""


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    path = world(tmp_path_factory.mktemp("work"), "t")
    seen = 'seen = { type = "date", domain = ["2000-01-01", "2009-12-31"], by = "month" }'
    path.write_text(f"{path.read_text()}{seen}\n")
    with duckdb.connect() as scribe:
        data = path.with_suffix(".parquet")
        rows = f"SELECT *, DATE '2001-01-01' + 100 * age::INTEGER AS seen FROM '{data}'"
        scribe.execute(f"CREATE TABLE t AS {rows}; COPY t TO '{data}'")
    with dpsql.connect(path, epsilon=1) as opened:
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


MULTIPLIED = {
    "summands": "({})".format(" + ".join(f"c{{0}}_{k}" for k in range(5))),
    "branches": "CASE WHEN g = 1 THEN c{0}_0 WHEN g = 2 THEN c{0}_1 ELSE c{0}_2 END",
    "least": "LEAST(c{0}_0, 2)",
}


@pytest.mark.parametrize("kind", MULTIPLIED)
def test_factors_with_columns_of_their_own_are_counted_before_they_multiply(
    kind: str, tmp_path: Path
) -> None:
    path = world(tmp_path, "t")
    names = [f"c{k}_{j}" for k in range(8) for j in range(5)]
    lines = [f'{each} = {{ type = "integer", bounds = [0, 3] }}' for each in names]
    path.write_text(
        "\n".join([path.read_text(), 'g = { type = "integer", domain = [0, 3] }', *lines])
    )
    with duckdb.connect() as scribe:
        data = path.with_suffix(".parquet")
        scribe.execute(f"CREATE TABLE t AS SELECT *, 1 AS g FROM '{data}'")
        for each in names:
            scribe.execute(f"ALTER TABLE t ADD COLUMN {each} INTEGER DEFAULT 1")
        scribe.execute(f"COPY t TO '{data}'")

    def text(size: int) -> str:
        return f"SELECT SUM({' * '.join(map(MULTIPLIED[kind].format, range(size)))}) FROM t"

    with dpsql.connect(path, epsilon=1) as opened:
        few, many = work_of(opened, text, 3)
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
    below = MentionCache()
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
    sealed = SealedConnection()
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


SIZES = (1, 2, 4, 8, 16) if IS_LARGE else (2,)
LONG: dict[str, str] = {
    **{f"{kind}, {n}": text(n) for kind, text in GROWING.items() for n in SIZES},
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
    "months": "SELECT COUNT(*) FROM t WHERE "
    + " OR ".join(f"month(seen) = {k % 12} AND year(seen) > {2000 + k}" for k in range(10)),
    "many aggregates": "SELECT "
    + ", ".join(f"COUNT(*) FILTER (WHERE age > {k % 9})" for k in range(30))
    + " FROM t",
}
STAGES = (
    *("lexemes", "parse", "token_rewrites", "tree_parts", "sugar", "compose", "shape", "scope"),
    *("expressions", "sums", "cell_constants", "products", "signed_products", "evaluate"),
)
"""Modules in which statements take long, from their text to their products."""
USUAL = (
    *("groups joined with themselves, 2", "a sum of many products", "months", "public rows"),
    *("many aggregates", "pairs in a list, 2"),
)
"""Statements that go through all of these."""
PATIENCE = 20_000
"""Calls of Python, some milliseconds, that may follow on the wish that a statement end."""


class Clock:
    """Counts the functions that work calls; at the given one it asks, as another thread would.

    ``entered`` are the counts at which functions of a module were called.
    """

    def __init__(self, ends: int = sys.maxsize) -> None:
        self.wish = Cancellation()
        self.ends = ends
        self.count = 0
        self.entered: dict[str, list[int]] = {}

    def __call__(self, frame: FrameType, event: str, of: object) -> None:
        if event != "call":
            return
        self.count += 1
        path = frame.f_code.co_filename
        if "/dpsql/sql/" in path:
            self.entered.setdefault(Path(path).stem, []).append(self.count)
        if self.count == self.ends:
            self.wish.ask()

    def run(self, work: Callable[[], object]) -> str:
        """How it ends: with an error, not at all, or since that was asked for."""
        before = sys.getprofile()
        try:
            with self.wish:
                sys.setprofile(self)
                work()
        except dpsql.Error as error:
            return str(error.code)
        except KeyboardInterrupt:
            return "ended"
        finally:
            sys.setprofile(before)
        return "ok"


@pytest.fixture
def one_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread looks whether evaluations take too long, and stays: no call begins another."""
    monkeypatch.setattr("dpsql.sealed.LOOKS", 60.0)
    monkeypatch.setattr("dpsql.sealed._clock", _Clock())


@pytest.mark.usefixtures("one_watch")
def test_a_statement_is_ended_wherever_it_is(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every kind of work, and nothing is left half done: the statement is compiled after it."""
    anew, swallowed = itertools.count(), list[object]()
    monkeypatch.setattr(sys, "unraisablehook", lambda told: swallowed.append(told.exc_type))

    def work(sql: str) -> None:
        connection.engine.compiler.known.clear()
        compiled(connection, sql.replace("SELECT", f"SELECT /* {next(anew)} */", 1))

    longest: dict[str, tuple[str, list[int]]] = {}
    outcomes: dict[str, str] = {}
    for sql in LONG.values() if IS_LARGE else map(LONG.__getitem__, USUAL):
        compiled_before(connection, sql)
        clock = Clock()
        outcomes[sql] = clock.run(partial(work, sql))
        for stage, entered in clock.entered.items():
            if len(entered) > len(longest.get(stage, ("", []))[1]):
                longest[stage] = sql, entered
    assert set(STAGES) <= set(longest)
    for stage, (sql, entered) in longest.items() if IS_LARGE else [(s, longest[s]) for s in STAGES]:
        for ends in {entered[0], entered[len(entered) // 2], entered[-1]}:
            clock = Clock(ends)
            found = clock.run(partial(work, sql))
            assert found == "ended", (stage, sql, clock.count, ends)
            assert clock.count - ends < PATIENCE, (stage, sql)
        assert Clock().run(partial(work, sql)) == outcomes[sql]
    assert set(swallowed) <= {KeyboardInterrupt}


def test_what_others_let_go_of_is_not_finalised_within() -> None:
    finalised: list[bool] = []

    class Left:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            finalised.append(True)

    @interruptible_anywhere
    def work() -> list[list[int]]:
        made = [[k] for k in range(10_000)]
        assert not finalised
        return made

    before = gc.get_threshold()
    gc.collect()
    try:
        gc.disable()
        Left()
        gc.set_threshold(2000, 1, 1)
        with Cancellation():
            gc.enable()
            work()
            assert gc.isenabled()
    finally:
        gc.set_threshold(*before)


def test_what_the_end_of_a_generator_swallows_is_thrown_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In it and in what is let go of otherwise, an exception ends nothing; Python tells of it."""
    swallowed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: swallowed.append(told.exc_type))
    wish, went_on = Cancellation(), list[bool]()

    def pieces() -> Iterator[int]:
        try:
            yield 1
        finally:
            wish.ask()
            reduce(lambda one, _: one, range(100))
            calls(lambda: None)

    @interruptible_anywhere
    def work() -> None:
        next(pieces())
        assert swallowed == [KeyboardInterrupt]
        for _ in range(10**7):
            calls(lambda: None)
        went_on.append(True)

    with wish, pytest.raises(KeyboardInterrupt):
        work()
    assert not went_on
    wish.check()


def test_an_end_that_comes_as_work_ends_reaches_no_other_thread() -> None:
    """Whenever it is asked for: nothing is thrown on, into a thread that has the place of ours."""
    draws, strays = random.Random(1), list[object]()

    @interruptible_anywhere
    def work(calls: int) -> None:
        for _ in range(calls):
            str(calls)

    def errand(wish: Cancellation, begun: threading.Event) -> None:
        with suppress(KeyboardInterrupt), wish:
            begun.set()
            work(draws.randrange(400))
        try:
            for k in range(300):
                str(k)
        except KeyboardInterrupt as stray:
            strays.append(stray)

    before, switches = set(threading.enumerate()), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(effort(400)):
            wish, begun = Cancellation(), threading.Event()
            thread = threading.Thread(target=errand, args=(wish, begun), daemon=True)
            thread.start()
            assert begun.wait(60)
            for _ in range(draws.randrange(60)):
                pass
            wish.ask()
            thread.join(60)
    finally:
        sys.setswitchinterval(switches)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive(), "it throws on"
    assert not strays


def test_work_that_forgets_that_it_is_to_end_is_told_again() -> None:
    wish, told = Cancellation(), threading.Semaphore(0)
    with wish:
        with wish.ended_by(told.release):
            wish.ask()
            assert all(told.acquire(timeout=60) for _ in range(3))
        with pytest.raises(KeyboardInterrupt):
            wish.check()


def test_many_joins_of_one_column_are_counted_before_duckdb_plans_them(
    connection: Connection,
) -> None:
    def text(size: int) -> str:
        joins = (f"JOIN (VALUES (1), (2)) AS v{k}(x) ON t.age = v{k}.x" for k in range(size))
        return f"SELECT COUNT(*) FROM t {' '.join(joins)}"

    compiled(connection, text(MAX_LINKS))
    with pytest.raises(dpsql.ProgrammingError, match="over 50 lists") as caught:
        compiled(connection, text(200))
    assert caught.value.code == "E_TOO_COMPLEX"


def test_what_duckdb_evaluates_ends_when_another_thread_asks_for_it() -> None:
    sealed, wish = SealedConnection(), Cancellation()
    sealed.run("SELECT 1")
    timer = threading.Timer(0.2, wish.ask)
    timer.start()
    with wish, pytest.raises(KeyboardInterrupt):
        sealed.run("SELECT count(*) FROM range(10000000000) a(i) WHERE md5(i::VARCHAR) = ''")
    timer.join()
    assert sealed.run("SELECT 2") == [(2,)]
    sealed.close()
