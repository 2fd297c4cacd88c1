"""Numbers without an error are told apart, in every format, whatever they are computed by.

Select lists are drawn of expressions of each kind; each output must mark as many numbers as have
no error, and give an error to all that have one.
"""

from __future__ import annotations

import base64
import io
import math
import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.answer.display import errors_as_columns, errors_as_text, result_html, result_text
from dpsql.answer.numbers import ERRORLESS
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.site import open_site
from dpsql.page.json_shapes import shape_result
from dpsql.server.copy_rows import copied
from dpsql.server.result_stream import ResultTable
from dpsql.server.statements import StatementRunner
from dpsql.sql.text.lexemes import split_statements
from dpsql.ui.chart import bars_of, draw_bars
from dpsql.ui.formats import FORMATS, encode
from dpsql.ui.grid import Grid
from dpsql.ui.report import BatchAnswer, BatchReport, summary_json, summary_markdown
from dpsql.ui.report_page import render_report
from dpsql.ui.style import Style
from tests.support.effort import effort
from tests.support.tables import World, open_tables

CATALOG = """
[budget]
epsilon = 1000000

[ledger]
anchor = "anchors"

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
ward = { type = "text", domain = ["eye", "skin", "none"] }
age = { type = "integer", domain = [0, 99] }
cost = { type = "number", bounds = [0, 100] }
"""
TABLES = {
    "t": "SELECT CASE WHEN i % 3 = 0 THEN 'eye' ELSE 'skin' END AS ward, i % 100 AS age,"
    " CAST(i % 90 AS DOUBLE) AS cost FROM range(900) v(i)"
}
SEEDS = effort(12)
KNOWN = (
    *("COUNT(*)", "SUM(cost)", "AVG(age)", "2 * COUNT(*) - 1", "SUM(age) / COUNT(*)"),
    *(
        "ROUND(COUNT(*), 1)",
        "VAR_POP(cost)",
        "SUM(COUNT(*)) OVER (ORDER BY ward)",
        "COUNT(*) FILTER (WHERE age < 50)",
    ),
)
UNKNOWN = (
    *("MEDIAN(age)", "QUANTILE_CONT(age, 0.3)", "QUANTILE_DISC(age, 0.9)", "MODE(age)"),
    *("LN(COUNT(*))", "COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY ward)", "ABS(SUM(cost))"),
    *(
        "FLOOR(COUNT(*) / 7)",
        "RANK() OVER (ORDER BY COUNT(*))",
    ),
)
NONE = (
    *("ward", "7", "DP_STDDEV(COUNT(*))", "DP_INTERVAL_HIGH(COUNT(*))"),
    *("UPPER(ward)", "CASE WHEN COUNT(*) > 9 THEN 'many' ELSE 'few' END", "COUNT(*) > 5"),
)
OVER = (
    "SELECT SUM(n) AS s, MAX(n) AS x FROM (SELECT ward, COUNT(*) AS n FROM t GROUP BY ward)",
    "SELECT x.n / 2 AS h FROM (SELECT ward, COUNT(*) AS n FROM t GROUP BY ward) x WHERE n > 10",
    "SELECT n - 5 AS known, LN(n) AS l FROM (SELECT ward, COUNT(*) AS n FROM t GROUP BY ward)",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_tables(tmp_path_factory.mktemp("told"), CATALOG, TABLES) as found:
        yield found


def drawn(seed: int) -> tuple[str, dict[str, str]]:
    """A statement, and by column of which kind its error is."""
    chosen = random.Random(seed)
    listed = {"known": KNOWN, "unknown": UNKNOWN, "none": NONE}
    items = [(kind, chosen.choice(listed[kind])) for kind in chosen.choices([*listed], k=4)]
    columns = ", ".join(f"{sql} AS c{i}" for i, (_, sql) in enumerate(items))
    kinds = {f"c{i}": kind for i, (kind, _) in enumerate(items)}
    return f"SELECT ward, {columns} FROM t GROUP BY ward", {"ward": "none", **kinds}


def marks_of(text: str) -> int:
    return len(re.findall(r"not known|\bNaN\b", text))


def _nans(columns: dict[str, list[Any]]) -> int:
    return sum(
        isinstance(v, float) and math.isnan(v)
        for name, values in columns.items()
        if name.endswith("_stddev")
        for v in values
    )


def _report(result: Result) -> str:
    """The page of a report, with the file that is inside it in place of its bytes."""
    page = render_report(_batch(result)).decode()
    lead = page.index("</header>")
    table = page[page.index("<table>", page.index('<section id="001')) :]
    assert "Every number has" not in page[:lead]
    (inside,) = re.findall(r"base64,([^\"]*)", table)
    table = table[: table.index("</table>")]
    in_file = base64.b64decode(inside).decode()
    assert marks_of(table) == marks_of(in_file)
    return table


def _batch(result: Result) -> BatchReport:
    from dpsql.engine.explanation import Explanation

    forecast = Explanation(
        (), "none", "laplace", Fraction(1), Fraction(0), 1.0, (), False, False, Fraction(1)
    )
    answer = BatchAnswer("001_a", None, result)
    return BatchReport("a.sql", "t.toml", forecast, (answer,), "1", "2024-01-01", ())


def _wire(result: Result) -> str:
    table = ResultTable(result, errors=True)
    return "\n".join("|".join(str(v) for v in row) for row in table.rows([]))


OUTPUTS: dict[str, Callable[[Result], int]] = {
    **{
        name: lambda r, name=name: marks_of(encode(Grid.of(r), name, Style(stddev=True)).decode())  # type: ignore[misc]
        for name, each in FORMATS.items()
        if each.encode is None
    },
    "parquet": lambda r: _nans(
        pq.read_table(io.BytesIO(encode(Grid.of(r), "parquet", Style(stddev=True)))).to_pydict()
    ),
    "arrow": lambda r: _nans(
        pa.ipc.open_file(encode(Grid.of(r), "arrow", Style(stddev=True))).read_all().to_pydict()
    ),
    "prompt": lambda r: marks_of(result_text(r).split("\n[")[0]),
    "notebook": lambda r: marks_of(result_html(r).split("<p>")[0]),
    "frame": lambda r: _nans(r.arrow(stddev=True).to_pydict()),
    "polars": lambda r: _nans(r.pl(stddev=True).to_dict(as_series=False)),
    "fetched columns": lambda r: marks_of(repr(errors_as_columns(r).rows).replace("nan", "NaN")),
    "fetched text": lambda r: marks_of(repr(errors_as_text(r).rows)),
    "wire": lambda r: marks_of(_wire(r)),
    "copy": lambda r: marks_of(b"".join(copied(ResultTable(r, errors=True), "csv", True)).decode()),
    "page": lambda r: repr(shape_result(r)["stddev"]).count("'NaN'"),
    "report": lambda r: marks_of(_report(r)),
}
assert OUTPUTS.keys() >= FORMATS.keys()


def check(result: Result, kinds: dict[str, str] | None = None) -> int:
    """Compare all outputs with what is known of the errors; how many numbers have none."""
    unknown = 0
    for j, (name, kind) in enumerate(zip(result.columns, result.types, strict=True)):
        values = [row[j] for row in result.rows if row[j] is not None]
        errors = [e for e in result.stddev[j] or () if e is not None]
        missing = len(values) - len(errors)
        if result.stddev[j] is not None and kind not in ERRORLESS:
            unknown += missing
            named = any("not worked out" in n and name in n for n in result.notes)
            assert named == bool(missing)
        if kinds is not None and kinds[name] == "known":
            assert result.stddev[j] is not None
            assert not missing
        if kinds is not None and kinds[name] == "unknown":
            assert not errors
            assert result.stddev[j] is not None
        if kinds is not None and kinds[name] == "none":
            assert not errors
    assert {name: count(result) for name, count in OUTPUTS.items()} == dict.fromkeys(
        OUTPUTS, unknown
    )
    assert not any("smooth" in note for note in result.notes)
    return unknown


def test_every_format_marks_what_has_no_error(world: World) -> None:
    found = 0
    for seed in range(SEEDS):
        sql, kinds = drawn(seed)
        result = world[0].cursor().execute(sql).result
        found += check(result, kinds)
    assert found > SEEDS


@pytest.mark.parametrize("sql", OVER)
def test_what_is_computed_over_sub_queries_is_marked(world: World, sql: str) -> None:
    assert check(world[0].cursor().execute(sql).result)


def test_summaries_and_charts_say_it(world: World) -> None:
    sql = "SELECT ward, COUNT(*) AS n, MEDIAN(age) AS m FROM t GROUP BY ward"
    result = world[0].cursor().execute(sql).result
    unknown = sum(row[2] is not None for row in result.rows)
    assert f'"not_known": {unknown}' in summary_json(_batch(result)).decode()
    assert "m ±not known" in summary_markdown(_batch(result)).decode()
    assert marks_of(draw_bars(*bars_of(Grid.of(result), "m", result.intervals))) == unknown


def test_a_rank_is_null_where_a_mean_is(world: World) -> None:
    """Groups of nobody, a noisy half of which have fewer than no rows."""
    calls = ("MEDIAN(age)", "QUANTILE_CONT(age, 0.2)", "QUANTILE_DISC(age, 0.9)", "MODE(age)")
    listed = ", ".join(f"{call} AS r{i}" for i, call in enumerate(calls))
    sql = f"SELECT age % 10 AS k, AVG(age) AS a, {listed} FROM t WHERE ward = 'none' GROUP BY k"
    nulls = 0
    for turn in range(8):
        words = sql.replace("AS a,", f"AS a, {turn} AS turn,")
        result = world[0].cursor().execute(words, epsilon=0.1).result
        for _, mean, _, *ranks in result.rows:
            nulls += mean is None
            assert mean is not None or ranks == [None] * len(calls)
    assert nulls


def test_a_client_is_told_the_errors_of_every_released_statement(world: World) -> None:
    connection: Connection = world[0]
    asker = StatementRunner(open_site(connection.catalog.path), None, None)
    asker.begin({"epsilon": "0.5"})
    sql = "SELECT ward, COUNT(*) AS n, MEDIAN(age) AS m, 1 AS one FROM t GROUP BY ward"
    (fragment,) = split_statements(sql)
    for _ in ("paid", "free"):
        (reply,) = asker.ask(sql, [asker.route(fragment)])
        said = [each.text for each in reply.notices]
        (errors,) = [each for each in said if each.startswith("standard error: ")]
        assert re.fullmatch(r"standard error: n [0-9.]+; m not known", errors)
    asker.close()


@pytest.mark.parametrize("shows", [True, False])
def test_a_server_may_show_errors_from_the_start(world: World, shows: bool) -> None:
    asker = StatementRunner(open_site(world[0].catalog.path), None, None, shows_errors=shows)
    asker.begin({"epsilon": "0.5"})
    sql = "SELECT ward, COUNT(*) AS n FROM t GROUP BY ward"
    (fragment,) = split_statements(sql)
    (reply,) = asker.ask(sql, [asker.route(fragment)])
    assert reply.table is not None
    assert [head.name for head in reply.table.heads] == ["ward", "n", *["n__stddev"] * shows]
    asker.settings["show_stddev"] = "off"
    asker.reset("")
    assert asker.shows_errors == shows
    asker.close()
