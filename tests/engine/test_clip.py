"""OPTIONS(clip, sum_mechanism): answers, sensitivities, privacy from outside, budget, refusals."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import Connection
from dpsql.engine.clip import ClippingJob, plan_clipping
from dpsql.engine.terms import Terms
from dpsql.learn.thresholds import PACE
from dpsql.privacy.budget.accounting import Policy, gaussian_cost, laplace_cost
from dpsql.privacy.budget.receipt import issue
from dpsql.privacy.doors import look
from dpsql.privacy.doors.exact_counts import TrueAnswers
from dpsql.privacy.doors.look import BinSumHandle, open_sums
from dpsql.privacy.doors.privacy_filter import Filter
from dpsql.privacy.noise.samplers import SAMPLERS
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.audit.lower_bound import epsilon_lower_bound

pytestmark = pytest.mark.slow

ROWS = [(v * v, v % 12, (v % 40) / 4, "ab"[v % 2], v % 5) for v in range(90)]
CATALOG = """
[budget]
epsilon = 100000
delta = 1e-9

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
pay = {{ type = "integer", bounds = [{low}, 10000], null = true, bounds_are = "loose" }}
age = {{ type = "integer", domain = [0, 11] }}
size = {{ type = "number", domain = [0, 10], bins = 5, null = true }}
sex = {{ type = "text", domain = ["a", "b"] }}
ward = {{ type = "integer", domain = [0, 4] }}

[table.visits]
source = "visits.parquet"
privacy_unit = {{ column = "who", max_rows = 3 }}

[table.visits.column]
pay = {{ type = "integer", bounds = [0, 10000], null = true }}
"""
Row = tuple[Any, ...]
PREFIX = "age, SUM(SUM(age)) OVER (ORDER BY age) AS s FROM t GROUP BY age ORDER BY age"
BINNED = "size, SUM(SUM(size)) OVER (ORDER BY size) AS s FROM t WHERE size >= 0 GROUP BY size"
_numbers = itertools.count()


def opened(folder: Path, extra: Sequence[Row] = (), low: int = 0) -> Connection:
    """Connect to a table of its own."""
    return dpsql.connect(written(folder, tuple(extra), low))


def written(folder: Path, extra: tuple[Row, ...] = (), low: int = 0) -> Path:
    """A catalog of its own, and its table."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("t.parquet", "visits.parquet"):
        (folder / name).write_bytes(parquet(extra))
    (folder / "c.toml").write_text(CATALOG.format(low=low))
    return folder / "c.toml"


@cache
def parquet(extra: tuple[Row, ...]) -> bytes:
    """The rows and some more of them as a Parquet file."""
    with duckdb.connect() as db, tempfile.TemporaryDirectory() as folder:
        db.execute("CREATE TABLE t (pay BIGINT, age INT, size DOUBLE, sex TEXT, ward INT)")
        rows = [*ROWS, *extra]
        places = ", ".join(["(?, ?, ?, ?, ?)"] * len(rows))
        db.execute(f"INSERT INTO t VALUES {places}", [value for row in rows for value in row])
        path = Path(folder) / "t.parquet"
        db.execute(f"COPY (SELECT *, row_number() OVER () % 30 AS who FROM t) TO '{path}'")
        return path.read_bytes()


@pytest.fixture
def t(tmp_path: Path) -> Iterator[Connection]:
    with opened(tmp_path / "t") as connection:
        yield connection


def asked(query: str, **options: object) -> str:
    """A SELECT with options; epsilon is 1 unless it is given."""
    given = {"epsilon": 1, **options}
    listed = ", ".join(f"{k} = {v!r}" for k, v in given.items())
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({listed}) {query}"


def answer(connection: Connection, query: str, **options: object) -> Any:
    return connection.execute(asked(query, **options)).result


def true(connection: Connection, sql: str) -> list[Row]:
    path = connection.catalog.path.with_name("t.parquet")
    with duckdb.connect() as db:
        db.execute(f"CREATE VIEW t AS FROM '{path}'")
        return db.execute(sql).fetchall()


@contextmanager
def quiet() -> Iterator[list[Fraction]]:
    """No noise in released numbers and in choices; the scales of the released ones."""
    scales: list[Fraction] = []

    def nothing(bits: object, scale: Fraction, size: int) -> NDArray[np.int64]:
        scales.append(scale)
        return np.zeros(size, dtype=np.int64)

    def still(bits: object, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    with (
        mock.patch.dict(SAMPLERS, {"laplace": nothing, "gaussian": nothing}),
        mock.patch("dpsql.privacy.noise.selection.discrete_laplace", still),
        mock.patch("dpsql.privacy.doors.look.discrete_laplace", still),
    ):
        yield scales


NOISES = [{}, {"noise": "gaussian", "delta": 1e-9}]


@pytest.mark.parametrize("noise", NOISES, ids=["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ("SUM(pay) FROM t", "SELECT SUM(LEAST(pay, 500)) FROM t"),
        ("SUM(pay) FROM t WHERE sex = 'a'", "SELECT SUM(LEAST(pay, 500)) FROM t WHERE sex = 'a'"),
        (
            "SUM(pay) FROM t WHERE age < 6 AND ward IN (1, 3)",
            "SELECT SUM(LEAST(pay, 500)) FROM t WHERE age < 6 AND ward IN (1, 3)",
        ),
        (
            "SUM(pay) FILTER (WHERE sex = 'a' OR age > ward) FROM t",
            "SELECT SUM(LEAST(pay, 500)) FILTER (WHERE sex = 'a' OR age > ward) FROM t",
        ),
    ],
)
def test_a_given_clip_is_a_clipped_sum(
    t: Connection, query: str, plain: str, noise: dict[str, Any]
) -> None:
    with quiet():
        found = answer(t, query, clip=500, **noise)
    assert found.rows[0][0] == pytest.approx(true(t, plain)[0][0], abs=1e-6)
    assert any("above 500 are clipped" in note and "downwards" in note for note in found.notes)
    assert any("standard errors are those of the clipped sums" in note for note in found.notes)


@pytest.mark.parametrize("rule", ["svt", "svt-ratio", "recursive", "quantile", "approx-bounds"])
@pytest.mark.parametrize("noise", NOISES, ids=["laplace", "gaussian"])
def test_chosen_thresholds_clip_a_measure(t: Connection, rule: str, noise: dict[str, Any]) -> None:
    with quiet():
        found = answer(t, "SUM(pay) FROM t", clip=rule, epsilon=4, **noise)
    note = next(note for note in found.notes if "chosen privately" in note)
    theta = int("".join(c for c in note.split("(")[0].split("above")[-1] if c.isdigit()))
    (total,) = true(t, f"SELECT SUM(LEAST(pay, {theta})) FROM t")[0]
    assert found.rows[0][0] == pytest.approx(total, abs=1e-6)


def test_a_clip_by_svt_leaves_the_rows_above_that_it_should(t: Connection) -> None:
    with quiet():
        found = answer(t, "SUM(pay) FROM t", clip="svt", epsilon=1)
    theta = int(found.notes[0].split(" above ")[1].split(" ")[0].replace(",", ""))
    (above,) = true(t, f"SELECT COUNT(*) FROM t WHERE pay > {theta}")[0]
    (below,) = true(t, f"SELECT COUNT(*) FROM t WHERE pay > {theta / 1.2}")[0]
    assert above <= 10 < below  # k = 5 / epsilon of the answer


@pytest.mark.parametrize("mechanism", ["tamm", "timm", "identity", "workload", "sqm"])
def test_batches_of_integers_by_every_mechanism(t: Connection, mechanism: str) -> None:
    with quiet():
        found = answer(t, PREFIX, clip=7, sum_mechanism=mechanism)
    plain = "age, SUM(SUM(LEAST(age, 7))) OVER (ORDER BY age) FROM t GROUP BY age ORDER BY age"
    expected = true(t, f"SELECT {plain}")
    assert [k for k, _ in found.rows] == [k for k, _ in expected]
    assert [v for _, v in found.rows] == pytest.approx([float(v) for _, v in expected], abs=1e-6)


@pytest.mark.parametrize("clip", [4, "none", "svt", "sure"])
@pytest.mark.parametrize("order", ["", " DESC"])
def test_batches_of_bins_are_sums_of_values(t: Connection, clip: object, order: str) -> None:
    query = BINNED.replace("BY size)", f"BY size{order})")
    with quiet():
        found = answer(t, query, clip=clip, epsilon=50)
    theta = {4: 4, "none": 10}.get(clip)
    if theta is None:
        text = found.notes[0].split("above " if "above" in found.notes[0] else "to ")[1]
        theta = int(text.split(" ")[0])
    kept = "size <= LEAST(e + 2, 10)" if not order else "size >= e"
    plain = f"SELECT e, SUM(LEAST(size, {theta})) FROM t, range(0, 10, 2) r(e) WHERE {kept}"
    expected = true(t, plain.replace("e + 2", "e + 1.99") + " GROUP BY e ORDER BY e")
    assert [v for _, v in found.rows] == pytest.approx([v for _, v in expected], rel=1e-4)


@pytest.mark.parametrize(
    ("query", "clip", "how"),
    [
        ("SUM(pay) FROM t", "r2t", "probability 0.9"),
        (PREFIX, "eb", "smooth tail"),
        (BINNED, "eb", "smooth tail"),
        (PREFIX, "r2t", "probability 0.9"),
    ],
)
def test_answers_without_known_errors_say_so(
    t: Connection, query: str, clip: str, how: str
) -> None:
    options = {"sum_mechanism": "workload"} if (query, clip) == (PREFIX, "r2t") else {}
    found = answer(t, query, clip=clip, epsilon=50, **options)
    assert found.biased
    assert set(found.stddev[-1]) == set(found.intervals[-1]) == {None}
    assert any(how in note for note in found.notes)
    again = answer(t, query, clip=clip, epsilon=50, **options)
    assert (again.rows, again.biased, again.cost.free) == (found.rows, True, True)
    forecast = str(t.explain(asked(query, clip=clip, **options)))
    assert "no standard error" in forecast
    if clip == "eb" and query == PREFIX:
        (total,) = true(t, "SELECT SUM(age) FROM t")[0]
        assert found.rows[-1][-1] == pytest.approx(total, rel=0.1)


def test_batches_are_nested_and_ordered(t: Connection) -> None:
    values = [v for _, v in answer(t, PREFIX, clip="none", epsilon=0.05).rows]
    assert values == sorted(values)
    assert values[0] >= 0
    notes = answer(t, PREFIX, clip="none", epsilon=0.05).notes
    assert any("non-decreasing" in note for note in notes)


EXTRA = [
    (None, 0, None, "a", 0),
    (10**9, 11, 10.0, "b", 4),
    (499, 3, 1.23, "a", 2),
    (-5, 7, 9.99, "b", 1),
]


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Connection]]:
    """The table, and those that have one row more."""
    folder = tmp_path_factory.mktemp("neighbours")
    state = mock.patch.dict("os.environ", {"XDG_STATE_HOME": str(folder / "state")})
    worlds: list[list[Row]] = [[], *([row] for row in EXTRA)]
    with ExitStack() as kept:
        with state:
            found = [opened(folder / str(i), extra) for i, extra in enumerate(worlds)]
        yield [kept.enter_context(each) for each in found]


@pytest.mark.parametrize("noise", NOISES, ids=["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("SUM(pay) FROM t", {"clip": 500}),
        ("SUM(pay) FROM t WHERE sex = 'b' OR ward = 2", {"clip": "svt", "epsilon": 4}),
        ("SUM(age) FROM t", {"clip": 7}),
        ("SUM(size) FROM t", {"clip": 4}),
        *((PREFIX, {"clip": 7, "sum_mechanism": m}) for m in ("tamm", "timm", "identity")),
        *((BINNED, {"clip": "none", "sum_mechanism": m}) for m in ("tamm", "timm", "workload")),
    ],
)
def test_one_row_moves_what_is_released_by_what_was_paid(
    neighbours: list[Connection], query: str, options: dict[str, Any], noise: dict[str, Any]
) -> None:
    released: list[NDArray[Any]] = []
    answer_of = TrueAnswers.answer

    def watched(self: Any, pieces: Any) -> NDArray[Any]:
        released.append(answer_of(self, pieces))
        return released[-1]

    spent: list[Fraction] = []
    spend = Filter.spend

    def counted(self: Any, what: str, amount: Fraction) -> None:
        spent.append(amount)
        spend(self, what, amount)

    with (
        quiet() as scales,
        mock.patch.object(TrueAnswers, "answer", watched),
        mock.patch.object(Filter, "spend", counted),
    ):
        for connection in neighbours:
            answer(connection, query, **options, **noise)
    (scale,), amount = set(scales), spent[-1]
    ratios = []
    for after in released[1:]:
        moved = [abs(int(v)) for v in after - released[0]]
        if noise:
            ratios.append(Fraction(sum(v * v for v in moved)) / (2 * scale * amount))
        else:
            ratios.append(Fraction(sum(moved)) / (scale * amount))
    assert max(ratios) <= 1
    assert max(ratios) > (Fraction(99, 100) if len(released[0]) == 1 else Fraction(1, 50))


def clipping(connection: Connection, sql: str) -> ClippingJob:
    """The public plan of a statement."""
    statement = parse(split_statements(sql)[0])
    terms = Terms(Fraction(100))
    for name, text in statement.options:
        if name in ("epsilon", "delta", "noise"):
            terms = terms.with_text(name, text)
    (item,) = connection.engine.compile([statement])
    return plan_clipping(item, terms)


def handle_of(connection: Connection, planned: ClippingJob) -> BinSumHandle:
    """A handle that a receipt without a ledger paid for."""
    run, policy = planned.run, Policy(Fraction(10**5), Fraction(1, 10**9))
    if planned.rho is None:
        cost = laplace_cost(policy, planned.epsilon)
    else:
        cost = gaussian_cost(policy, planned.rho, planned.epsilon)
    version = connection.engine.vaults.versions([run.table])
    head = f"clip-{next(_numbers)}"
    receipt = issue("clip", 1, head, run.fingerprint, version, cost)
    return open_sums(run, receipt, connection.engine.vaults)


@pytest.mark.parametrize("noise", NOISES, ids=["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("query", "clip"),
    [
        *itertools.product(
            ["SUM(pay) FROM t"],
            ["none", "svt", "recursive", "quantile", "approx-bounds", "r2t", 500],
        ),
        *itertools.product([PREFIX, BINNED], ["none", "svt", "sure", "eb", 4]),
    ],
)
def test_a_run_spends_exactly_what_the_ledger_records(
    t: Connection, query: str, clip: object, noise: dict[str, Any]
) -> None:
    sql = asked(query, clip=clip, epsilon=0.5, **noise)
    planned = clipping(t, sql)
    handle = handle_of(t, planned)
    planned.learn(handle, ("", 0, ""))
    assert sum(amount for _, amount in handle.spent) == planned.amount
    assert handle.remaining() == 0
    t.execute(sql)
    *_, entry = t.entries()
    assert Fraction(entry.epsilon) == Fraction(1, 2)
    assert entry.plan_hash == planned.run.fingerprint
    assert entry.state == "released"
    assert bool(entry.rho) == bool(noise)


def test_every_mechanism_spends_all_it_is_given(t: Connection) -> None:
    for mechanism in ("tamm", "timm", "identity", "workload", "sqm"):
        planned = clipping(t, asked(PREFIX, clip="svt", sum_mechanism=mechanism))
        handle = handle_of(t, planned)
        planned.learn(handle, ("", 0, ""))
        spent = sum(amount for _, amount in handle.spent)
        assert spent == 1


@pytest.mark.parametrize("noise", NOISES, ids=["laplace", "gaussian"])
def test_the_same_request_is_free_and_equal(t: Connection, noise: dict[str, Any]) -> None:
    first = answer(t, PREFIX, clip="svt", **noise)
    count = len(t.entries())
    again = answer(t, PREFIX, clip="svt", **noise)
    assert again.rows == first.rows
    assert again.stddev == first.stddev
    assert again.cost.free
    assert not first.cost.free
    assert len(t.entries()) == count
    assert set(again.notes) > set(first.notes)
    assert "free: from entry" in str(t.explain(asked(PREFIX, clip="svt", **noise)))
    with dpsql.connect(t.catalog.path) as other:
        assert answer(other, PREFIX, clip="svt", **noise).rows == first.rows
    t.execute("SET fresh = on")
    assert answer(t, PREFIX, clip="svt", **noise).rows != first.rows
    assert len(t.entries()) == count + 1


def test_thresholds_of_the_pace_of_before_are_found(
    t: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dpsql.engine.clip.STEADY", 1 / PACE)
        before = answer(t, "SUM(pay) FROM t", clip="recursive")
    now = answer(t, "SUM(pay) FROM t", clip="recursive")
    assert not before.cost.free
    assert now.cost.free
    assert now.rows == before.rows


def test_the_errors_are_those_of_the_noise(t: Connection) -> None:
    planned = clipping(t, asked("SUM(pay) FROM t", clip=500, epsilon=2))
    found = [planned.learn(handle_of(t, planned), ("", 0, "")) for _ in range(400)]
    values, stddev = np.array([each.values[0] for each in found]), found[0].stddev[0]
    assert stddev == pytest.approx(math.sqrt(2) * 500 / 2, rel=1e-6)
    assert values.std() == pytest.approx(stddev, rel=0.25)
    (total,) = true(t, "SELECT SUM(LEAST(pay, 500)) FROM t")[0]
    assert values.mean() == pytest.approx(total, abs=6 * stddev / 20)


def test_rows_of_a_unit_add_up(t: Connection) -> None:
    one = answer(t, "SUM(pay) FROM t", clip=500, epsilon=2)
    three = answer(t, "SUM(pay) FROM visits", clip=500, epsilon=2)
    assert three.stddev[0][0] == pytest.approx(3 * one.stddev[0][0], rel=1e-6)


def audit(folder: Path, clip: object, query: str, runs: int = 200) -> float:
    """Bound epsilon from below by outputs on a table and with one row more."""
    found = []
    for i, extra in enumerate([[], [(10**6, 11, 10.0, "a", 0)]]):
        with opened(folder / f"{i}", extra) as connection:
            options = {"sum_mechanism": "identity"} if "GROUP BY" in query else {}
            planned = clipping(connection, asked(query, clip=clip, epsilon=2, **options))
            rows = []
            for _ in range(runs):
                sums = planned.learn(handle_of(connection, planned), ("", 0, ""))
                rows.append([*sums.values, *map(float, sums.levels)])
            found.append(np.array(rows))
    return epsilon_lower_bound(found[0], found[1])


@pytest.mark.parametrize(
    ("clip", "query"),
    [
        ("svt", "SUM(pay) FROM t"),
        ("recursive", "SUM(pay) FROM t"),
        ("quantile", "SUM(pay) FROM t"),
        ("r2t", "SUM(pay) FROM t"),
        ("none", "SUM(size) FROM t"),
        ("sure", BINNED),
    ],
)
def test_epsilon_from_below(tmp_path: Path, clip: object, query: str) -> None:
    assert audit(tmp_path, clip, query) <= 2


def test_the_audit_finds_what_is_planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "joint_norm", lambda *_: Fraction(1, 8))
    assert audit(tmp_path, "none", "SUM(pay) FROM t") > 2


REFUSED = [
    ("AVG(pay) FROM t", {"clip": "sure"}, "E_AGGREGATE"),
    ("AVG(pay) FROM t", {"clip": "svt", "sum_mechanism": "tamm"}, "E_AGGREGATE"),
    ("AVG(pay) FROM t", {"clip": "svt", "max_stddev": 3}, "E_SETTING"),
    ("AVG(pay) FROM t", {"clip": "svt", "mechanism": "mwem"}, "E_SETTING"),
    ("AVG(pay, contribution_bounds_per_group => (0, 9)) FROM t", {"clip": 5}, "E_SETTING"),
    ("ward, AVG(size) FROM t GROUP BY ward", {"clip": 4}, "E_AGGREGATE"),
    ("COUNT(*) FROM t", {"clip": "svt"}, "E_AGGREGATE"),
    ("SUM(age + 1) FROM t", {"clip": "svt"}, "E_AGGREGATE"),
    ("MEDIAN(age) FROM t", {"clip": "svt"}, "E_AGGREGATE"),
    ("sex, SUM(age) FROM t GROUP BY sex", {"clip": "svt"}, "E_AGGREGATE"),
    ("sex, AVG(pay) FROM t GROUP BY sex", {"clip": "sure"}, "E_AGGREGATE"),
    ("SUM(pay) FROM t", {"clip": "svtt"}, "E_SETTING"),
    ("SUM(pay) FROM t", {"clip": 0}, "E_SETTING"),
    ("SUM(pay) FROM t", {"clip": "1e3"}, "E_SETTING"),
    ("SUM(pay) FROM t", {"clip": "-4"}, "E_SETTING"),
    ("SUM(pay) FROM t", {"clip": "sure"}, "E_SETTING"),
    ("SUM(pay) FROM t", {"clip": "eb"}, "E_SETTING"),
    ("AVG(pay) FROM t", {"clip": "r2t"}, "E_AGGREGATE"),
    (PREFIX, {"clip": "r2t"}, "E_SETTING"),
    (PREFIX, {"clip": "eb", "sum_mechanism": "timm"}, "E_SETTING"),
    ("SUM(pay) FROM t", {"clip": "svt", "sum_mechanism": "tamm"}, "E_SETTING"),
    ("SUM(pay) FROM t", {"clip": "svt", "max_stddev": 3}, "E_SETTING"),
    ("SUM(pay) FROM t", {"clip": "svt", "mechanism": "mwem"}, "E_SETTING"),
    (PREFIX, {"sum_mechanism": "tam"}, "E_SETTING"),
    (PREFIX, {"clip": "sure", "sum_mechanism": "workload"}, "E_SETTING"),
    (BINNED, {"clip": 3}, "E_BIN_EDGE"),
]


@pytest.mark.parametrize(("query", "options", "code"), REFUSED)
def test_refusals_name_what_works_and_charge_nothing(
    neighbours: list[Connection], query: str, options: dict[str, Any], code: str
) -> None:
    t = neighbours[0]
    before = t.budget
    for action in (t.execute, t.explain):
        with pytest.raises(dpsql.Error) as caught:
            action(asked(query, **options))
        assert caught.value.code == code
        assert caught.value.hint
        assert caught.value.span is not None
    assert t.budget == before


def test_values_below_zero_are_refused_or_clipped_from_above(tmp_path: Path) -> None:
    with opened(tmp_path / "t", [(-40, 1, 1.0, "a", 1)], low=-100) as connection:
        with pytest.raises(dpsql.Error, match="below 0"):
            answer(connection, "SUM(pay) FROM t", clip="svt")
        with quiet():
            found = answer(connection, "SUM(pay) FROM t", clip=50)
        (total,) = true(connection, "SELECT SUM(LEAST(pay, 50)) FROM t")[0]
        assert found.rows[0][0] == pytest.approx(total)
        assert found.stddev[0][0] == pytest.approx(math.sqrt(2) * 100, rel=1e-6)


def test_explain_says_rule_share_and_bias(t: Connection) -> None:
    text = str(t.explain(asked("SUM(pay) FROM t", clip="svt")))
    assert "svt" in text
    assert "45 % of the budget" in text
    assert "about 10 rows stay above it" in text
    assert "biased downwards" in text
    small = str(t.explain(asked("SUM(pay) FROM t", clip="svt", epsilon=0.01)))
    assert "budget too small to be useful" in small
    plain = str(t.explain(asked("SUM(pay) FROM t")))
    assert "OPTIONS(clip = 'svt')" in plain
    assert "hint" not in str(t.explain(asked("COUNT(*) FROM t")))
    assert "of least estimated risk" in str(t.explain(asked(PREFIX, clip="sure")))
    assert "as given, free" in str(t.explain(asked(PREFIX, clip=7)))
    assert t.budget.entries == 0


def test_forecast_and_answer_agree_on_the_error(t: Connection) -> None:
    for query in ("SUM(pay) FROM t", PREFIX, BINNED):
        sql = asked(query, clip="none")
        forecast = t.explain(sql).rmse
        found = np.array(t.execute(sql).result.stddev[-1])
        assert math.sqrt(float(np.square(found).mean())) == pytest.approx(forecast, rel=1e-3)


def test_loose_bounds_are_advice_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "t") as connection:
        before = connection.catalog.policy_hash()
        path = connection.catalog.path
    path.write_text(path.read_text().replace(', bounds_are = "loose"', ""))
    assert read_catalog(path).policy_hash() == before
    path.write_text(path.read_text().replace("null = true }", 'bounds_are = "big" }', 1))
    with pytest.raises(dpsql.Error, match="bounds_are"):
        read_catalog(path)


def test_a_run_that_fails_stays_paid_and_stores_nothing(
    t: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, pieces: Any) -> NDArray[Any]:
        raise ValueError("true answer 42")

    with monkeypatch.context() as patch:
        patch.setattr(TrueAnswers, "answer", broken)
        with pytest.raises(dpsql.Error) as caught:
            answer(t, "SUM(pay) FROM t", clip="svt")
    assert caught.value.code == "E_INTERNAL"
    assert "42" not in str(caught.value)
    *_, debit = [entry for entry in t.entries() if entry.kind == "debit"]
    assert debit.state == "failed"
    assert not answer(t, "SUM(pay) FROM t", clip="svt").cost.free


def test_a_budget_that_is_short_refuses_and_charges_nothing(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / "small.toml"
    text = (tmp_path / "c.toml").read_text().replace("epsilon = 100000", "epsilon = 1")
    (tmp_path / "t.parquet").rename(tmp_path / "s.parquet")
    path.write_text(text.replace("t.parquet", "s.parquet"))
    with dpsql.connect(path) as small:
        answer(small, "SUM(pay) FROM t", clip="svt", epsilon=0.6)
        with pytest.raises(dpsql.BudgetExceeded):
            answer(small, "SUM(pay) FROM t", clip="recursive", epsilon=0.6)
        assert small.budget.entries == 1


WIDE = {
    "a": ("integer", 0, 10_000, ""),
    "b": ("number", 0, 5_000, ""),
    "c": ("integer", 5, 6_000, ""),
    "d": ("integer", 0, 200, ', bounds_are = "loose"'),
}
NARROW = {
    "e": ("integer", 0, 999, ""),
    "f": ("number", 0, 1, ""),
    "g": ("integer", 18, 2_000, ""),
    "h": ("integer", -1, 10_000, ""),
}
ASKED = [
    "SUM({0}) FROM t",
    "AVG({0}) AS m, COUNT(*) AS n FROM t WHERE sex = 'a'",
    "sex, SUM({0}) AS s FROM t GROUP BY sex",
    "SUM({0}) - 5 * COUNT(*) AS s FROM t",
    "VAR_POP({0}) AS v FROM t",
    "SUM({0}) + 1 AS s FROM (SELECT {0} FROM t WHERE sex = 'b')",
    "SUM({0}, contribution_bounds_per_group => (0, 19)) AS s FROM t",
    "SUM({0} * {0}) AS s FROM t",
    "SUM({0} + z) AS s FROM t",
    "COUNT({0}) AS n FROM t",
    "MAX(s) AS m FROM (SELECT sex, SUM({0}) AS s FROM t GROUP BY sex)",
]


def measured(folder: Path, values: int, hint: str = "") -> Connection:
    """A table of measures with bounds of all kinds; the values are no public fact."""
    folder.mkdir()
    names = [*WIDE, *NARROW, "z"]
    lines = [f"{'ab'[i % 2]},{','.join([str(values)] * len(names))}" for i in range(20)]
    (folder / "t.csv").write_text("\n".join([f"sex,{','.join(names)}", *lines]) + "\n")
    columns = [
        f'{name} = {{ type = "{kind}", bounds = [{low}, {high}]{more} }}'
        for name, (kind, low, high, more) in {**WIDE, **NARROW, "z": ("integer", 0, 9, "")}.items()
    ]
    (folder / "c.toml").write_text(
        f'[budget]\nepsilon = 100\n[ledger]\nanchor = "anchors"\n[table.t]\nsource = "t.csv"\n'
        f'privacy_unit = "row"\n{hint}\n[table.t.column]\n'
        f'sex = {{ type = "text", domain = ["a", "b"] }}\n' + "\n".join(columns) + "\n"
    )
    return dpsql.connect(folder / "c.toml")


def advised(connection: Connection, sql: str) -> list[str]:
    return [text for label, text in connection.explain(sql).rows() if label == "hint"]


def test_wide_bounds_are_told_with_words_that_work(tmp_path: Path) -> None:
    with measured(tmp_path / "t", 1) as t:
        columns, bests = itertools.product([*zip(WIDE, NARROW, strict=True)], (0, 1)), 0
        for (pair, at), form in zip(itertools.cycle(columns), 2 * ASKED, strict=False):
            column = pair[at]
            query = form.format(column)
            try:
                clipped = advised(t, asked(query, clip="svt", epsilon=1))
            except dpsql.Error:
                clipped = None
            found = advised(t, asked(query, epsilon=1))
            one = "*" not in query.replace("COUNT(*)", "") or "COUNT" in query
            expected = clipped is not None and column in WIDE and one
            assert len(found) == expected, query
            assert clipped in (None, []), query
            assert all("OPTIONS(clip = 'svt')" in text for text in found)
            told = str(t.explain(asked(query, epsilon=1)))
            assert not found or "any strategy" not in told, query
            bests += "of the best for these bounds" in told
        assert bests >= 4
        assert t.budget.entries == 0


def test_advice_is_of_public_facts_and_stands_beside_answers(tmp_path: Path) -> None:
    sql = asked("SUM(a) FROM t", epsilon=1)
    with measured(tmp_path / "t", 1) as low, measured(tmp_path / "u", 9_999) as high:
        (told,) = advised(low, sql)
        assert [told] == advised(high, sql)
        assert not advised(low, asked("SUM(a) FROM t", epsilon=0.01))
        for connection in (low, high, low):
            result: Any = connection.execute(sql).result
            assert result.notes.count(told) == 1
    with measured(tmp_path / "v", 1, "row_count_hint = 50") as few:
        assert not advised(few, sql)
    with measured(tmp_path / "w", 1, "row_count_hint = 1000000") as many:
        assert advised(many, asked("SUM(a) FROM t", epsilon=0.01))


def test_advice_says_from_where_on_a_clip_has_less_error(tmp_path: Path) -> None:
    """The forecast of a clip is in proportion to the largest value: equal to that of the bound."""
    with measured(tmp_path / "t", 1) as t:
        (told,) = advised(t, asked("SUM(a) FROM t", epsilon=1))
        plain = t.explain(asked("SUM(a) FROM t", epsilon=1)).rmse
        clipped = t.explain(asked("SUM(a) FROM t", epsilon=1, clip="svt")).rmse
        least = float(told.split("rows are below ")[1].split(" ")[0].replace(",", ""))
        assert least == pytest.approx(10_000 * plain / clipped, rel=0.06)
        said = str(t.explain(asked("SUM(a) FROM t", epsilon=1, clip="svt")))
        assert f"{clipped:.4g} at its worst (root mean square)" in said
        assert f"{plain:.4g} without a clip" in said
        assert f"less than without a clip where that is below {least:,.0f}\n" in said
        assert f"{float(f'{plain:.2g}'):,.0f}" in told


def test_advice_writes_no_groups_out(tmp_path: Path) -> None:
    """A square of 150,000 groups, 170 GiB, was asked for once the answer was paid for."""
    (tmp_path / "t.csv").write_text("k,x\n1,2\n")
    (tmp_path / "c.toml").write_text(
        "[budget]\nepsilon = 10\n[table.t]\nsource = 't.csv'\nprivacy_unit = 'row'\n"
        "row_count_hint = 100\n[table.t.column]\nx = { type = 'number', bounds = [0, 1000] }\n"
        "k = { type = 'integer', domain = [0, 149999] }\n"
    )
    with dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        asked = connection.execute("SELECT k, AVG(x) AS m FROM t GROUP BY k HAVING COUNT(*) > 9")
        assert asked.result.columns == ("k", "m")


@pytest.mark.parametrize("query", ["AVG(a)", "VAR_POP(a)", "STDDEV(a) / 2", "sex, AVG(a)"])
def test_means_say_the_same_with_a_clip_as_without(tmp_path: Path, query: str) -> None:
    """The words that are advised lead to the level that the advice is about."""
    query += " FROM t" + " GROUP BY sex" * query.startswith("sex")
    with measured(tmp_path / "t", 1) as t:
        (told,) = advised(t, asked(query, epsilon=4))
        least = told.split("rows are below ")[1].split(" ")[0]
        said = str(t.explain(asked(query, epsilon=4, clip="svt")))
        assert f"less than without a clip where that is below {least}\n" in said
        assert "the error of a sum of a by itself is at most" in said
        assert "the error above" not in said
