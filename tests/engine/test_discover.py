"""Domains and bounds that are found: every statement about them, and sequences of statements."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection, Result
from dpsql.privacy.budget import hash_chain
from dpsql.privacy.budget.curator_acts import migrate_ledger
from dpsql.privacy.budget.ledger import Ledger
from tests.support.seam import zero_noise
from tests.support.tables import insert

CATALOG = """
[budget]
epsilon = {epsilon}
delta = 1e-6
discovery_delta = {part}
[ledger]
anchor = "anchors"
[table.sales]
source = "sales.parquet"
privacy_unit = "row"
[table.sales.column]
sex = {{ type = "text", domain = ["f", "m"] }}
product = {{ type = "text", domain = "discover", null = true }}
code = {{ type = "integer", domain = "discover", other = -1 }}
day = {{ type = "date", domain = "discover", by = "month" }}
price = {{ type = "number", bounds = "discover" }}
[table.buys]
source = "buys.parquet"
privacy_unit = {{ column = "person", max_rows = 20 }}
[table.buys.column]
sex = {{ type = "text", domain = ["f", "m"] }}
product = {{ type = "text", domain = "discover", max_keys = 3, null = true, other = "Rest" }}
"""
FREQUENT = {"tea": 400, "milk": 300, "salt": 200}
CREATE = "CREATE DOMAIN products FROM sales (product) OPTIONS (epsilon = 1)"
ASK = "SELECT product, COUNT(*) AS n FROM sales GROUP BY product"


def sell(folder: Path, more: str = "", epsilon: str = "60", part: str = "5e-7") -> Path:
    """Write the sales under two names, and the catalog."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("sales", "buys"):
        (folder / f"{name}.parquet").write_bytes(sales())
    catalog = folder / "sales.toml"
    catalog.write_text(CATALOG.format(epsilon=epsilon, part=part) + more)
    return catalog


@cache
def sales() -> bytes:
    """1,001 sales: three products that many buy, forty that one person buys, and NULL."""
    products = [name for name, count in FREQUENT.items() for _ in range(count)]
    products += [f"rare {i}" for i in range(40)]
    rows = [
        (i // 2, "fm"[i % 2], product, [7, 9, 11][i % 3], f"2024-0{1 + i % 3}-17", 5.0 + i % 50)
        for i, product in enumerate([*products, *[None] * 61])
    ]
    with duckdb.connect() as connection, tempfile.TemporaryDirectory() as folder:
        connection.execute(
            "CREATE TABLE t (person INTEGER, sex VARCHAR, product VARCHAR, code INTEGER,"
            " day DATE, price DOUBLE)"
        )
        insert(connection, "t", rows)
        path = Path(folder) / "sales.parquet"
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
        return path.read_bytes()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Connection]:
    with dpsql.connect(sell(tmp_path), epsilon=1) as connection:
        yield connection


def ask(connection: Connection, sql: str, **options: Any) -> Result:
    return connection.execute(sql, **options).result


def anew(connection: Connection, sql: str) -> Result:
    """Ask for new noise, whatever was paid for before."""
    connection.set("reuse", "never")
    found = ask(connection, sql)
    connection.set("reuse", "auto")
    return found


def facts(connection: Connection, sql: str) -> dict[str, Any]:
    return {row[0]: row[1] for row in ask(connection, sql).rows}


def refused(connection: Connection, sql: str, code: str, hint: str = "") -> dpsql.Error:
    before = connection.budget
    with pytest.raises(dpsql.Error) as caught:
        ask(connection, sql)
    assert caught.value.code == code, caught.value
    assert hint in str(caught.value.hint)
    assert connection.budget == before
    return caught.value


def test_a_domain_is_found_once_and_is_then_declared(shop: Connection) -> None:
    refused(shop, ASK, "E_DOMAIN", "CREATE DOMAIN d FROM sales (product)")
    made = ask(shop, CREATE)
    assert made.cost is not None
    assert not made.cost.free
    assert facts(shop, "DESCRIBE DOMAIN products")["keys found"] == "3"
    described = ask(shop, "DESCRIBE sales").rows
    assert described[1] == ("product", "text", "milk, salt, tea, else other, or NULL", 5)
    with zero_noise():
        rows = dict(ask(shop, ASK).rows)
        assert rows == {"milk": 300, "salt": 200, "tea": 400, "other": 40, None: 61}
        where = "SELECT sex, COUNT(*) FROM sales WHERE product = 'tea' GROUP BY sex"
        assert ask(shop, where).rows == (("f", 200), ("m", 200))
    assert ask(shop, "SHOW domains").rows == (("products", "domain", "sales.product", 1),)


def test_statements_that_do_not_mention_the_column_work_before_and_are_free_after(
    shop: Connection,
) -> None:
    first = ask(shop, "SELECT sex, COUNT(*) FROM sales GROUP BY sex")
    ask(shop, CREATE)
    again = ask(shop, "SELECT sex, COUNT(*) FROM sales GROUP BY sex")
    assert again.cost is not None
    assert again.cost.free
    assert again.rows == first.rows


def test_it_survives_a_restart_and_repeated_answers_stay_free(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    with dpsql.connect(catalog, epsilon=1) as connection:
        ask(connection, CREATE)
        first = ask(connection, ASK)
    with dpsql.connect(catalog, epsilon=1) as connection:
        before = connection.budget
        again = ask(connection, ASK)
        assert again.rows == first.rows
        assert ask(connection, "SELECT COUNT(*) FROM sales WHERE product = 'tea'").cost.free  # type: ignore[union-attr]
        assert connection.budget == before


def test_two_connections_see_what_either_finds_or_drops(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    with dpsql.connect(catalog, epsilon=1) as one, dpsql.connect(catalog, epsilon=1) as two:
        ask(two, "SELECT COUNT(*) FROM sales")
        ask(one, CREATE)
        first = ask(two, ASK)
        assert ask(one, ASK).rows == first.rows
        refused(two, CREATE.replace("products", "again"), "E_STATEMENT", "DROP DOMAIN products")
        ask(two, "DROP DOMAIN products")
        refused(one, ASK, "E_DOMAIN", "CREATE DOMAIN")


def test_what_was_dropped_never_answers_for_what_is_found_next(shop: Connection) -> None:
    ask(shop, CREATE)
    ask(shop, ASK)
    spent = shop.budget.remaining_epsilon
    ask(shop, "DROP DOMAIN products")
    assert shop.budget.remaining_epsilon == spent, "what it cost stays spent"
    refused(shop, ASK, "E_DOMAIN")
    refused(shop, "DROP DOMAIN products", "E_UNKNOWN_TABLE", "there are none")
    with mock.patch("dpsql.privacy.doors.find_keys._choose", return_value=("ale", "gin", "rum")):
        anew(shop, CREATE)
    found = ask(shop, ASK)
    assert {row[0] for row in found.rows} == {"ale", "gin", "rum", "other", None}
    assert found.cost is not None
    assert not found.cost.free, "three other keys: another request, though of the same shape"
    with zero_noise():
        fresh = dict(ask(shop, ASK + " HAVING 1 = 1", epsilon=2).rows)
    assert set(fresh) == set(dict(found.rows))


def test_a_synthetic_table_keeps_the_domain_that_it_was_learned_with(shop: Connection) -> None:
    ask(shop, CREATE)
    ask(shop, "CREATE SYNTHETIC TABLE s FROM sales OPTIONS (epsilon = 5) FOR (" + ASK + ")")
    before = ask(shop, "SELECT product, COUNT(*) FROM s GROUP BY product").rows
    ask(shop, "DROP DOMAIN products")
    assert ask(shop, "SELECT product, COUNT(*) FROM s GROUP BY product").rows == before
    with mock.patch("dpsql.privacy.doors.find_keys._choose", return_value=("ale", "gin", "rum")):
        ask(shop, CREATE)
    assert ask(shop, "SELECT product, COUNT(*) FROM s GROUP BY product").rows == before


@pytest.mark.parametrize("options", ["epsilon = 2", "epsilon = 2, noise = gaussian, delta = 1e-7"])
def test_several_keys_of_a_unit_count(shop: Connection, options: str) -> None:
    ask(shop, f"CREATE DOMAIN bought FROM buys (product) OPTIONS ({options})")
    with zero_noise():
        found = dict(ask(shop, "SELECT product, COUNT(*) FROM buys GROUP BY product").rows)
    assert found == {"milk": 300, "salt": 200, "tea": 400, "Rest": 40, None: 61}


def test_numbers_and_days_are_found(shop: Connection) -> None:
    ask(shop, "CREATE DOMAIN codes FROM sales (code)")
    ask(shop, "CREATE DOMAIN days FROM sales (day)")
    with zero_noise():
        codes = dict(ask(shop, "SELECT code, COUNT(*) FROM sales GROUP BY code").rows)
        days = ask(shop, "SELECT day, COUNT(*) FROM sales GROUP BY day").rows
    assert codes == {7: 334, 9: 334, 11: 333, -1: 0}
    assert [day.isoformat() for day, _ in days] == ["2024-01-01", "2024-02-01", "2024-03-01"]


def test_bounds_are_found_and_are_then_those_of_the_column(shop: Connection) -> None:
    refused(
        shop, "SELECT SUM(price) FROM sales", "E_NO_BOUNDS", "CREATE BOUNDS d FROM sales (price)"
    )
    ask(shop, "CREATE BOUNDS prices FROM sales (price) OPTIONS (epsilon = 1)")
    assert facts(shop, "DESCRIBE BOUNDS prices")["bounds"] == "4 to 64"
    with zero_noise():
        found = ask(shop, "SELECT SUM(price) FROM sales").rows[0][0]
    assert found == pytest.approx(sum(5.0 + i % 50 for i in range(1001)), rel=1e-3)
    ask(shop, "DROP BOUNDS prices")
    refused(shop, "SELECT SUM(price) FROM sales", "E_NO_BOUNDS")


def test_explain_is_free_and_guesses_no_number_of_keys(shop: Connection) -> None:
    before = shop.budget
    lines = [row[0] for row in ask(shop, "EXPLAIN " + CREATE).rows]
    assert any("a key that" in line for line in lines)
    assert any("discovery_delta 8.33333e-09 of 5e-07" in line for line in lines)
    assert "truncated geometric" in " ".join(lines)
    assert shop.explain("CREATE BOUNDS b FROM sales (price)").lines()
    assert shop.budget == before


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("CREATE DOMAIN d FROM sales (sex)", "E_DOMAIN"),
        ("CREATE DOMAIN d FROM sales (price)", "E_DOMAIN"),
        ("CREATE BOUNDS d FROM sales (product)", "E_DOMAIN"),
        ("CREATE DOMAIN d FROM sales (nothing)", "E_UNKNOWN_COLUMN"),
        ("CREATE DOMAIN d FROM nothing (product)", "E_UNKNOWN_TABLE"),
        ("CREATE DOMAIN d FROM sales product", "E_PARSE"),
        ("CREATE DOMAIN d FROM sales (product, 7)", "E_PARSE"),
        ("CREATE DOMAIN d FROM sales (product, sex)", "E_DOMAIN"),
        ("CREATE DOMAIN d FROM sales (product, day)", "E_DOMAIN"),
        ("CREATE DOMAIN d FROM sales (product, product)", "E_DOMAIN"),
        ("CREATE BOUNDS d FROM sales (price, price)", "E_PARSE"),
        ("CREATE DOMAIN 'd' FROM sales (product)", "E_PARSE"),
        ('CREATE DOMAIN "a b" FROM sales (product)', "E_STATEMENT"),
        ("CREATE DOMAIN d FROM sales (product) OPTIONS (epsilon = 1, colour = 2)", "E_SETTING"),
        ("CREATE DOMAIN d FROM sales (product) OPTIONS (discovery_delta = 1)", "E_DELTA"),
        ("CREATE DOMAIN d FROM sales (product) OPTIONS (discovery_delta = 1e-6)", "E_BUDGET"),
        ("CREATE DOMAIN d FROM sales (product) OPTIONS (discovery_delta = 5e-7)", "E_BUDGET"),
        ("CREATE DOMAIN d FROM sales (product) OPTIONS (epsilon = 70)", "E_BUDGET"),
        ("CREATE DOMAIN d FROM sales (product) OPTIONS (epsilon = 0.00001)", "E_EPSILON"),
        ("CREATE DOMAIN d FROM buys (product) OPTIONS (noise = gaussian)", "E_DELTA"),
        ("CREATE BOUNDS d FROM sales (price) OPTIONS (discovery_delta = 1e-9)", "E_SETTING"),
        ("DROP DOMAIN products", "E_UNKNOWN_TABLE"),
        ("DROP DOMAIN a b", "E_PARSE"),
        ("DROP TABLE sales", "E_STATEMENT"),
        ("DESCRIBE DOMAIN products", "E_UNKNOWN_TABLE"),
    ],
)
def test_what_cannot_be_found_is_refused_and_costs_nothing(
    shop: Connection, sql: str, code: str
) -> None:
    refused(shop, sql, code)


def test_without_a_part_of_delta_nothing_is_found(tmp_path: Path) -> None:
    with dpsql.connect(sell(tmp_path, part="0"), epsilon=1) as connection:
        refused(connection, CREATE, "E_DELTA", "discovery_delta in [budget]")


def test_the_part_is_used_as_epsilon_is_until_nothing_is_left(tmp_path: Path) -> None:
    with dpsql.connect(sell(tmp_path, epsilon="3"), epsilon=1) as shop:
        for left in (2, 1, 0):
            assert shop.budget.remaining_epsilon == left + 1
            anew(shop, CREATE)
            ask(shop, "DROP DOMAIN products")
            assert shop.budget.remaining_discovery * 3 == left * shop.budget.total_discovery
        assert ask(shop, "EXPLAIN " + CREATE).rows
        ask(shop, CREATE)  # what was paid for is found again
        assert shop.budget.entries == 3


def test_more_than_is_left_of_the_part_is_refused(shop: Connection) -> None:
    with mock.patch.object(hash_chain, "LEAST_PART", Fraction(1)):  # as earlier versions let it
        ask(shop, CREATE.replace("= 1)", "= 1, discovery_delta = 5e-7)"))
    shop.set("reuse", "never")
    ask(shop, "DROP DOMAIN products")
    refused(shop, CREATE, "E_BUDGET", "discovery_delta")
    shop.set("reuse", "auto")
    assert ask(shop, "EXPLAIN " + CREATE).rows
    ask(shop, CREATE)  # found again, on whatever part it was
    assert shop.budget.entries == 1


def test_where_nothing_stands_out_the_column_stays_as_it_was(shop: Connection) -> None:
    with mock.patch("dpsql.privacy.doors.find_keys._choose", return_value=()):
        ask(shop, CREATE)
        assert dict(ask(shop, ASK).rows).keys() == {"other", None}
        assert "nothing stood out" in ask(shop, "CREATE DOMAIN days FROM sales (day)").notes[0]
        ask(shop, "CREATE DOMAIN codes FROM sales (code)")
        codes = ask(shop, "SELECT code, COUNT(*) FROM sales GROUP BY code").rows
        assert [row[0] for row in codes] == [-1]
    refused(shop, "SELECT day, COUNT(*) FROM sales GROUP BY day", "E_DOMAIN", "DROP DOMAIN")


def test_texts_that_are_almost_the_same_become_one_key(shop: Connection) -> None:
    keys = ("cafe\u0301", "caf\u00e9", "other", "tea", "tea ")
    with mock.patch("dpsql.privacy.doors.find_keys._choose", return_value=keys):
        ask(shop, CREATE)
    assert [row[0] for row in ask(shop, ASK).rows] == ["cafe\u0301", "tea", "other", None]


def test_the_debit_is_durable_before_noise_and_the_domain_stored_before_it_is_settled(
    tmp_path: Path,
) -> None:
    """A crash at either place loses budget, never privacy: the next process sees the charge."""
    catalog = sell(tmp_path)
    steps = ("dpsql.privacy.doors.find_keys._choose", "dpsql.answer.store.Domains.add")
    for count, step in enumerate(steps, 1):
        with (
            dpsql.connect(catalog, epsilon=1) as connection,
            mock.patch(step, side_effect=OSError),
            pytest.raises(dpsql.Error),
        ):
            ask(connection, CREATE)
        with dpsql.connect(catalog, epsilon=1) as connection:
            assert connection.budget.remaining_epsilon == 60 - count
            assert connection.entries()[count].state == "failed"
            assert connection.budget.remaining_discovery * 60 == (60 - count) * (
                connection.budget.total_discovery
            )
            refused(connection, ASK, "E_DOMAIN")
    with dpsql.connect(catalog, epsilon=1) as connection:
        ask(connection, CREATE)
        assert connection.entries()[3].state == "released"


def test_an_interrupt_between_debit_and_store_waits(shop: Connection) -> None:
    debit = Ledger.debit

    def interrupted(*given: Any, **named: Any) -> Any:
        receipt = debit(*given, **named)
        import _thread

        _thread.interrupt_main()
        return receipt

    with mock.patch.object(Ledger, "debit", interrupted), pytest.raises(dpsql.Interrupted) as told:
        ask(shop, CREATE)
    assert told.value.charged == 1
    assert told.value.lost == 0
    assert ask(shop, "SHOW domains").rows


def test_a_script_finds_and_asks_in_its_order(shop: Connection) -> None:
    cursor = shop.executescript(
        f"EXPLAIN {CREATE}; {CREATE}; DESCRIBE DOMAIN products; SHOW domains"
    )
    assert cursor.result.columns == ("explain",)
    for _ in range(3):
        assert cursor.nextset()
    assert cursor.result.rows[0][0] == "products"


def test_a_script_checks_everything_before_it_finds_anything(shop: Connection) -> None:
    cursor = shop.executescript(
        f"SET epsilon = 2; {CREATE}; {ASK}; SELECT DISTINCT product FROM sales"
    )
    for _ in range(3):
        assert cursor.nextset()
    assert {row[0] for row in cursor.result.rows} == {*FREQUENT, "other", None}
    before = shop.budget
    bounds = "CREATE BOUNDS b FROM sales (price)"
    for script, code in [
        (f"{bounds}; SELECT SUM(prize) FROM sales", "E_UNKNOWN_COLUMN"),
        (f"{bounds}; SELECT SUM(price) FROM sales GROUP BY", "E_PARSE"),
        (f"{bounds}; CREATE DOMAIN d FROM sales (sex); SELECT SUM(price) FROM sales", "E_DOMAIN"),
        (f"SELECT COUNT(*) FROM sales; {bounds}", "E_STATEMENT"),
        (f"{bounds}; SELECT product FROM sales", "E_NO_AGGREGATE"),
    ]:
        with pytest.raises(dpsql.Error) as caught:
            shop.executescript(script)
        assert caught.value.code == code, script
        assert shop.budget == before, script
    shop.executescript(f"{bounds}; SELECT SUM(price) FROM sales")


def private(sql: str) -> str:
    """A statement that finds the keys that it needs."""
    return sql.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (keys = 'private')", 1)


PRIVATE = private(ASK.replace("FROM sales", "FROM sales WHERE sex = 'f'"))


def test_keys_are_found_and_asked_in_one_request_for_a_half_each(shop: Connection) -> None:
    lines = [row[0] for row in ask(shop, "EXPLAIN " + PRIVATE, epsilon=4).rows]
    assert any("epsilon 2 more" in line for line in lines)
    first = ask(shop, PRIVATE, epsilon=4)
    assert first.cost is not None
    assert first.cost.epsilon == 4
    assert [entry.epsilon for entry in shop.entries()[1:]] == ["2", "2"]
    assert any("sales_product" in note for note in first.notes)
    again = ask(shop, PRIVATE, epsilon=4)
    assert again.cost is not None
    assert again.cost.free
    assert again.rows == first.rows
    assert shop.explain(PRIVATE).free
    ask(shop, "DROP DOMAIN sales_product")
    assert ask(shop, PRIVATE, epsilon=4).rows == first.rows, "what was paid for is found again"
    assert shop.budget.entries == 2


def test_combinations_are_found_and_asked_in_one_request(shop: Connection) -> None:
    both = private("SELECT product, code, COUNT(*) AS n FROM sales GROUP BY product, code")
    assert any("epsilon 2 more" in row[0] for row in ask(shop, "EXPLAIN " + both, epsilon=4).rows)
    first = ask(shop, both, epsilon=4)
    pairs = {row[:2] for row in first.rows}
    assert {("tea", code) for code in (7, 9, 11)} <= pairs
    assert not any("rare" in str(name) for name, _ in pairs)
    assert any("sales_code_product" in note for note in first.notes)
    assert ask(shop, both, epsilon=4).cost.free  # type: ignore[union-attr]
    left = shop.budget
    alone = private("SELECT product, COUNT(*) AS n FROM sales GROUP BY product")
    with pytest.raises(dpsql.Error, match="keys of several columns in one request"):
        shop.executescript(f"{both}; {alone}".replace("code", "day"))
    refused(shop, private(ASK.replace("product", "product, day")), "E_DOMAIN", "domain of its own")
    assert shop.budget == left
    ask(shop, "DROP DOMAIN sales_code_product")
    assert ask(shop, both, epsilon=4).rows == first.rows, "what was paid for is found again"
    assert shop.budget == left


def test_keys_of_one_request_are_refused_before_anything_is_found(shop: Connection) -> None:
    both = PRIVATE.replace("product", "code, day").replace("code, day, COUNT", "code, day, COUNT")
    refused(shop, both, "E_DOMAIN", "a domain of its own")
    refused(shop, PRIVATE.replace("'private'", "'private', epsilon = 61"), "E_BUDGET")
    refused(shop, PRIVATE.replace("'private'", "'private', max_stddev = 5"), "E_SETTING")
    refused(shop, PRIVATE.replace("'private'", "'all'"), "E_SETTING")
    where = PRIVATE.replace("WHERE", "WHERE product = 'tea' AND")
    refused(shop, where, "E_NOT_IN_DOMAIN", "CREATE DOMAIN first")
    where = PRIVATE.replace("WHERE", "WHERE sex = 'x' AND")
    refused(shop, where, "E_NOT_IN_DOMAIN", "'f', 'm'")
    refused(shop, PRIVATE.replace("AS n", "AS n, SUM(price)"), "E_NO_BOUNDS")


def test_keys_stay_found_where_the_answers_fail(shop: Connection) -> None:
    fault = "dpsql.privacy.doors.measure._measure_part"
    with mock.patch(fault, side_effect=MemoryError), pytest.raises(dpsql.Error):
        ask(shop, PRIVATE)
    assert ask(shop, "SHOW domains").rows
    ask(shop, PRIVATE)
    assert [entry.epsilon for entry in shop.entries()[1:]] == ["1/2", "1/2", "1/2"]


def test_a_domain_stays_when_the_data_change_and_says_so(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    with dpsql.connect(catalog, epsilon=1) as connection:
        ask(connection, CREATE)
        assert not any("earlier version" in note for note in ask(connection, ASK).notes)
    with duckdb.connect() as connection_:
        path = tmp_path / "sales.parquet"
        connection_.execute(f"CREATE TABLE t AS SELECT * FROM '{path}' LIMIT 900")
        connection_.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    with dpsql.connect(catalog, epsilon=1) as connection:
        result = ask(connection, ASK)
        assert {row[0] for row in result.rows} == {*FREQUENT, "other", None}
        told = "domain products is of an earlier version of sales (entry 1 of the ledger)"
        assert told in result.notes
        assert ask(connection, "DESCRIBE DOMAIN products").notes


def test_a_script_that_runs_again_is_free(shop: Connection) -> None:
    script = f"{CREATE.replace('DOMAIN', 'DOMAIN IF NOT EXISTS')}; {ASK}"
    assert len(shop.explain(script).lines()) > 3
    shop.executescript(script)
    before = shop.budget
    cursor = shop.executescript(script)
    assert cursor.result.message == "domain products was found before: free"
    assert shop.budget == before
    assert shop.explain(script).free


UNITS = (
    "SELECT n, COUNT(*) AS c FROM (SELECT person, {} AS n FROM buys GROUP BY person) AS p"
    " GROUP BY n"
)
WITHIN = (
    UNITS.format("COUNT(*) FILTER (WHERE product = '{}')"),
    UNITS.format("COUNT(DISTINCT product)"),
    "SELECT COUNT(*) FROM buys WHERE person IN (SELECT person FROM buys WHERE product = '{}')",
)


@pytest.mark.parametrize("form", WITHIN)
def test_a_domain_that_decides_within_a_sub_query_is_asked_about(
    shop: Connection, form: str
) -> None:
    for keys in (("milk", "salt"), ("rare 1", "tea")):
        with mock.patch("dpsql.privacy.doors.find_keys._choose", return_value=keys):
            anew(shop, "CREATE DOMAIN bought FROM buys (product)")
        found = ask(shop, form.format(keys[0]))
        assert found.cost is not None
        assert not found.cost.free, "other keys in the same places: another request"
        assert ask(shop, form.format(keys[0])).cost.free  # type: ignore[union-attr]
        ask(shop, "DROP DOMAIN bought")


def test_what_keys_would_make_possible_is_not_remembered(shop: Connection) -> None:
    units = UNITS.format("COUNT(*)")
    private = units.replace(
        "SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (keys = 'private')", 1
    )
    by = private.replace("SELECT person", "SELECT person, product").replace(
        "GROUP BY person", "GROUP BY person, product"
    )
    assert shop.explain(private)
    first = ask(shop, units).rows
    assert ask(shop, "EXPLAIN " + by).rows
    shop.executescript("CREATE DOMAIN IF NOT EXISTS bought FROM buys (product); " + units)
    assert ask(shop, units).rows == first
    assert ask(shop, by, epsilon=2).rows
    assert not ask(shop, by, epsilon=3).cost.free  # type: ignore[union-attr]


def test_rows_that_a_dropped_domain_left_out_count_again(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    catalog.write_text(catalog.read_text().replace(", other = -1 }", " }"))
    count, by = "SELECT COUNT(*) FROM sales", "SELECT code, COUNT(*) FROM sales GROUP BY code"
    with zero_noise(), dpsql.connect(catalog, epsilon=1) as connection:
        for code in (7, 11):
            with mock.patch("dpsql.privacy.doors.find_keys._choose", return_value=(code,)):
                anew(connection, "CREATE DOMAIN codes FROM sales (code)")
            assert ask(connection, by).rows == ((code, 334 if code == 7 else 333),)
            ask(connection, "DROP DOMAIN codes")
            assert ask(connection, count).rows == ((1001,),)


def test_a_domain_that_the_catalog_declares_later_is_the_catalogs(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    by = "SELECT product, COUNT(*) FROM buys GROUP BY product"
    with dpsql.connect(catalog, epsilon=1) as connection:
        ask(connection, CREATE.replace("sales", "buys"))
        ask(connection, by)
    text = catalog.read_text()
    listed = 'domain = ["salt", "ale"], '
    catalog.write_text(text.replace('domain = "discover", max_keys = 3, ', listed))
    migrate_ledger(catalog)
    with dpsql.connect(catalog, epsilon=1) as connection, zero_noise():
        expected = {"salt": 200, "ale": 0, "Rest": 740, None: 61}
        assert dict(ask(connection, by).rows) == expected
        ask(connection, "DROP DOMAIN products")
        assert dict(ask(connection, by).rows) == expected


CHILD = """
import dpsql
with dpsql.connect({path!r}, epsilon=1) as connection:
    print("ready", flush=True)
    try:
        connection.execute("CREATE DOMAIN products FROM sales (code)")
    except dpsql.Error as error:
        print(error.code, connection.budget.remaining_epsilon)
"""


def test_two_processes_do_not_give_two_domains_one_name(tmp_path: Path) -> None:
    """The second waits until the first has stored its domain, and is refused before it pays."""
    catalog = sell(tmp_path)
    code = CHILD.format(path=str(catalog))
    child: list[subprocess.Popen[str]] = []

    def choose(asked: Any, pairs: Any) -> tuple[str, ...]:
        other = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        child.append(other)
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
        return ("salt", "tea")

    with dpsql.connect(catalog, epsilon=1) as connection:
        with mock.patch("dpsql.privacy.doors.find_keys._choose", side_effect=choose):
            ask(connection, CREATE)
        told, _ = child[0].communicate(timeout=60)
        assert told.split() == ["E_STATEMENT", "59"]
        assert len(ask(connection, "SHOW domains").rows) == 1
