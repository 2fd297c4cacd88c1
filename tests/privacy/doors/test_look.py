"""The handle of an adaptive run: its laws, filter and receipt, and what it never gives away."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsql.algebra.blocks import Dense
from dpsql.catalog.read import read_catalog
from dpsql.errors import BudgetExceeded, Error, InternalError, LedgerError
from dpsql.pgm.measurements import Candidate, Handle
from dpsql.privacy.budget.accounting import Policy, gaussian_cost, laplace_cost
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.doors import exact_counts, look
from dpsql.privacy.doors.exact_products import apply_unbounded
from dpsql.privacy.doors.look import TableHandle, open_handle
from dpsql.privacy.doors.privacy_filter import Run
from dpsql.privacy.doors.vaults import Vaults
from dpsql.privacy.noise.samplers import SAMPLERS
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Product
from tests.privacy.judge import agrees, chi_square, gaussian_masses, laplace_masses
from tests.privacy.looks import World, cell, dense, some_candidate, whole

DOMAIN = {"a": 3, "b": 2}
COUNTS = np.array([[5, 0], [2, 7], [1, 1]])
NOISES: list[Noise] = ["laplace", "gaussian"]
ONE = Fraction(1)


def marginals() -> list[Candidate]:
    return [whole(DOMAIN, "a"), whole(DOMAIN, "b"), whole(DOMAIN, "a", "b"), whole(DOMAIN)]


def zeros(candidates: list[Candidate]) -> list[NDArray[np.float64]]:
    return [np.zeros(len(dense(each, DOMAIN))) for each in candidates]


def test_it_is_a_handle() -> None:
    handle: Handle = World(DOMAIN).opened(1)
    assert dict(handle.domain) == DOMAIN
    assert list(handle.domain) == ["a", "b"]
    assert handle.noise == "laplace"
    assert handle.remaining() == 1


def drawn(
    law: dict[tuple[int, ...], float], draw: Callable[[], list[int]], runs: int = 3000
) -> float:
    seen = dict.fromkeys(law, 0)
    for _ in range(runs):
        seen[tuple(draw())] += 1
    pairs = [(seen[key], chance * runs) for key, chance in law.items()]
    pairs.sort(key=lambda pair: pair[1])
    while len(pairs) > 2 and pairs[0][1] < 6:
        pairs[:2] = [(pairs[0][0] + pairs[1][0], pairs[0][1] + pairs[1][1])]
        pairs.sort(key=lambda pair: pair[1])
    o, e = np.array(pairs, dtype=float).T
    return float(stats.chisquare(o, e * o.sum() / e.sum()).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("count", [1, 2])
def test_select_follows_the_exponential_mechanism(noise: Noise, count: int) -> None:
    c = 2
    world = World(DOMAIN, COUNTS)
    candidates = [whole(DOMAIN, "a"), whole(DOMAIN, "b"), cell(DOMAIN, a=1), cell(DOMAIN, a=2, b=1)]
    answers = [np.array([3.4, 9.0, 0.6]), np.array([8.0, 7.6]), np.array([2.0]), np.array([1.49])]
    weights = [ONE, Fraction(1, 2), Fraction(1, 4), ONE]
    penalties = [1.2, 0.0, -3.0, 0.0]
    scores = [(2 + 0 + 1 - 1) * 1.0, (0 + 0) * 0.5, (7 + 3) * 0.25, 0.0]
    amount = Fraction(6) if noise == "laplace" else Fraction(4)
    each = float(amount) / count
    eta = (each if noise == "laplace" else (8 * each) ** 0.5) / (2 * c)
    law = {}
    for order in itertools.permutations(range(4), count):
        chance, left = 1.0, set(range(4))
        for i in order:
            chance *= np.exp(eta * scores[i]) / sum(np.exp(eta * scores[j]) for j in left)
            left.remove(i)
        law[order] = chance
    handle = world.opened(10**6, noise, c)

    def draw() -> list[int]:
        return handle.select(
            candidates, answers, penalties=penalties, weights=weights, count=count, amount=amount
        )

    assert agrees(lambda: drawn(law, draw))


def test_scores_change_by_no_more_than_the_spread_says(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    seen: list[tuple[Any, int]] = []

    def watch(_: object, scores: Any, epsilon: Fraction, spread: int, count: int) -> list[int]:
        seen.append((scores, spread))
        return [0]

    monkeypatch.setattr(look, "top_choices", watch)
    for c in (1, 3):
        candidates = [some_candidate(rng, DOMAIN) for _ in range(12)]
        answers = [rng.normal(0, 5, len(dense(each, DOMAIN))) for each in candidates]
        weights = [Fraction(int(w), 8) for w in rng.integers(0, 9, 12)]
        base = rng.integers(0, 9, (3, 2))
        for place in [None, *itertools.product(range(3), range(2))]:
            world = World(DOMAIN, base)
            if place is not None:
                world.cells.counts[place] += c
            handle = world.opened(1, c=c)
            handle.select(candidates, answers, weights=weights, amount=ONE)
        (first, spread), *others = seen
        changes = [abs(b - a) for scores, _ in others for a, b in zip(first, scores, strict=True)]
        assert 2 * max(changes) <= spread
        assert len({s for _, s in seen}) == 1
        seen.clear()


def test_the_spread_of_marginals_and_cells_is_twice_the_rows_of_a_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []

    def watch(*given: Any) -> list[int]:
        seen.append(given[3])
        return [0]

    monkeypatch.setattr(look, "top_choices", watch)
    handle = World(DOMAIN).opened(2, c=3)
    handle.select(marginals(), zeros(marginals()), amount=ONE)
    cells = [cell(DOMAIN, a=1), cell(DOMAIN, a=1, b=1)]
    handle.select(cells, zeros(cells), amount=ONE)
    assert seen == [6, 6]


def test_true_answers_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(5)
    world = World(DOMAIN, rng.integers(0, 99, (3, 2)))
    handle = world.opened(1)
    for _ in range(60):
        candidate = some_candidate(rng, DOMAIN)
        pieces = handle._reader.read(candidate)
        expected = dense(candidate, DOMAIN) @ world.cells.counts.ravel()
        assert handle._truth.answer(pieces).tolist() == expected.tolist()
        near = rng.integers(-9, 9, expected.size)
        (found,) = handle._truth.distances([pieces], [near])
        assert found == np.abs(expected - near).sum()


def test_every_marginal_is_counted_once() -> None:
    world = World(DOMAIN, COUNTS)
    handle = world.opened(10)
    for _ in range(3):
        handle.select(marginals(), zeros(marginals()), amount=ONE)
        handle.measure(marginals(), ONE)
    handle.total(ONE)
    assert sorted(world.cells.asked) == [(), ("a",), ("a", "b"), ("b",)]


def test_every_single_answer_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []

    def counting(
        matrices: tuple[NDArray[np.int64] | None, ...], counts: NDArray[np.int64], most: int
    ) -> Any:
        worked.append(len(matrices))
        return apply_unbounded(matrices, counts, most)

    monkeypatch.setattr(exact_counts, "apply_unbounded", counting)
    row, both = Dense(np.array([[1, 1, 0]])), Dense(np.array([[1, 1]]))
    sums: list[Candidate] = [(Product({"a": row}),), (Product({"a": row, "b": both}),)]
    handle = World(DOMAIN, COUNTS).opened(10)
    for _ in range(3):
        handle.select(sums, zeros(sums), amount=ONE)
    assert worked == [1, 2]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("c", [1, 3])
def test_measured_noise_has_the_law_of_the_joint_sensitivity(noise: Noise, c: int) -> None:
    domain = {"a": 40, "b": 30}
    asked = [
        whole(domain, "a", "b"),
        whole(domain, "a"),
        (Product({"b": Dense(np.full((1, 30), 3))}),),
    ]
    norm = 5 if noise == "laplace" else 11

    def p_value() -> float:
        handle = World(domain).opened(40, noise, c)
        found = [handle.measure(asked, Fraction(2)) for _ in range(20)]
        values = np.concatenate([each.values for batch in found for each in batch])
        assert values.tolist() == np.rint(values).tolist()
        stddev = found[0][0].stddev
        if noise == "laplace":
            scale = c * norm / 2
            assert stddev == pytest.approx(2**0.5 * scale)
            return chi_square(values, laplace_masses(scale, int(12 * scale)))
        sigma2 = c * c * norm / 4
        assert stddev == pytest.approx(sigma2**0.5)
        return chi_square(values, gaussian_masses(sigma2, int(7 * sigma2**0.5)))

    assert agrees(p_value)


@pytest.mark.parametrize("noise", NOISES)
def test_costs_add_up_to_the_receipt_and_not_beyond(noise: Noise) -> None:
    world = World(DOMAIN, COUNTS)
    handle = world.opened(Fraction(1), noise)
    third = Fraction(1, 3)
    handle.total(third)
    handle.select(marginals(), zeros(marginals()), count=2, amount=third)
    before = len(world.cells.asked)
    with pytest.raises(BudgetExceeded) as caught:
        handle.measure([whole(DOMAIN, "a")], third + Fraction(1, 10**30))
    assert caught.value.remaining == third == handle.remaining()
    handle.measure([whole(DOMAIN, "b")], third)
    assert handle.remaining() == 0
    assert sum(amount for _, amount in handle.spent) == 1
    for ask in (
        lambda: handle.total(Fraction(1, 10**30)),
        lambda: handle.measure([whole(DOMAIN, "a")], Fraction(1, 10**30)),
        lambda: handle.select(marginals(), zeros(marginals()), amount=Fraction(1, 10**30)),
    ):
        with pytest.raises(BudgetExceeded):
            ask()
    assert len(world.cells.asked) == before
    assert [what for what, _ in handle.spent] == ["total", "select", "measure"]


def test_a_refused_look_draws_no_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = World(DOMAIN, COUNTS).opened(1)

    def refuse() -> None:
        raise AssertionError("bits were drawn")

    monkeypatch.setattr(look, "Bits", refuse)
    for ask in (
        lambda: handle.total(Fraction(2)),
        lambda: handle.select(marginals(), zeros(marginals()), amount=Fraction(2)),
    ):
        with pytest.raises(BudgetExceeded):
            ask()


@pytest.mark.parametrize("noise", NOISES)
def test_the_noise_that_is_drawn_costs_no_more_than_the_amount(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(11)
    scales: list[Fraction] = []

    def silent(_: object, scale: Fraction, size: int) -> NDArray[np.int64]:
        scales.append(scale)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setitem(SAMPLERS, noise, silent)
    for _ in range(40):
        asked = [some_candidate(rng, DOMAIN) for _ in range(rng.integers(1, 4))]
        amount, c = Fraction(int(rng.integers(1, 10**6)), 10**6), int(rng.integers(1, 4))
        World(DOMAIN).opened(1, noise, c).measure(asked, amount)
        rows = np.concatenate([dense(each, DOMAIN) for each in asked]).astype(object)
        for column in (c * rows).T:
            if noise == "laplace":
                assert Fraction(int(np.abs(column).sum())) / scales[-1] <= amount
            else:
                assert Fraction(int((column**2).sum())) / (2 * scales[-1]) <= amount
    assert len(set(scales)) > 10


BAD: list[Callable[[TableHandle], object]] = [
    lambda h: h.select([], [], amount=ONE),
    lambda h: h.measure([], ONE),
    lambda h: h.measure(marginals(), 1.0),  # type: ignore[arg-type]
    lambda h: h.measure(marginals(), Fraction(0)),
    lambda h: h.total(Fraction(-1)),
    lambda h: h.total(True),  # type: ignore[arg-type]
    lambda h: h.measure([(Product({"a": Dense(np.array([[0.5, 0, 0]]))}),)], ONE),
    lambda h: h.measure([(Product({"z": Dense(np.eye(3, dtype=int))}),)], ONE),
    lambda h: h.select(marginals(), zeros(marginals())[1:], amount=ONE),
    lambda h: h.select(marginals(), [z[:-1] for z in zeros(marginals())], amount=ONE),
    lambda h: h.select(marginals(), [z * np.nan for z in zeros(marginals())], amount=ONE),
    lambda h: h.select(marginals(), [z + np.inf for z in zeros(marginals())], amount=ONE),
    lambda h: h.select(marginals(), zeros(marginals()), count=0, amount=ONE),
    lambda h: h.select(marginals(), zeros(marginals()), count=5, amount=ONE),
    lambda h: h.select(marginals(), zeros(marginals()), weights=[ONE], amount=ONE),
    lambda h: h.select(marginals(), zeros(marginals()), weights=[-ONE] * 4, amount=ONE),
    lambda h: h.select(marginals(), zeros(marginals()), weights=[0 * ONE] * 4, amount=ONE),
    lambda h: h.select(marginals(), zeros(marginals()), penalties=[0.0], amount=ONE),
    lambda h: h.select(marginals(), zeros(marginals()), penalties=[np.nan] * 4, amount=ONE),
    lambda h: h.select(marginals(), zeros(marginals()), amount=Fraction(0)),
]


@pytest.mark.parametrize("ask", BAD)
def test_looks_that_make_no_sense_are_free_and_see_nothing(
    ask: Callable[[TableHandle], object],
) -> None:
    world = World(DOMAIN, COUNTS)
    handle = world.opened(1)
    with pytest.raises(InternalError, match="E_INTERNAL"):
        ask(handle)
    assert handle.remaining() == 1
    assert world.cells.asked == []


def test_extreme_answers_are_cut() -> None:
    handle = World(DOMAIN, COUNTS).opened(2)
    wild = [np.full(len(z), 1e300) for z in zeros(marginals())]
    wild[1] = np.zeros(2)
    assert 1 not in handle.select(marginals(), wild, count=3, amount=ONE)
    assert len(handle.select(marginals(), wild, penalties=[-1e300] * 4, amount=ONE)) == 1


def test_a_failure_shows_nothing_and_stays_spent() -> None:
    world = World(DOMAIN, COUNTS)
    handle = world.opened(2)

    def fail(*_: object) -> None:
        raise ValueError("row 7 is 12345")

    world.cells.count = fail
    texts = set()
    for ask in (
        lambda: handle.total(ONE),
        lambda: handle.select(marginals(), zeros(marginals()), amount=ONE),
    ):
        with pytest.raises(InternalError) as caught:
            ask()
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert "12345" not in texts.pop()
    assert handle.remaining() == 0


@pytest.mark.parametrize("noise", NOISES)
def test_a_receipt_opens_one_handle_of_one_run(noise: Noise) -> None:
    world = World(DOMAIN)
    run = world.run(ONE, noise)
    receipt = world.receipt(run)
    open_handle(run, receipt, world)
    with pytest.raises(LedgerError, match="E_RECEIPT"):
        open_handle(run, receipt, world)
    others = [
        world.run(ONE, noise, settings='{"rounds": 2}'),
        world.run(ONE, noise, c=2),
        world.run(2 * ONE, noise),
        world.run(ONE, "gaussian" if noise == "laplace" else "laplace"),
        World({"b": 2, "a": 3}).run(ONE, noise),
        World({"a": 3, "b": 3}).run(ONE, noise),
    ]
    assert len({run.fingerprint, *(other.fingerprint for other in others)}) == 7
    for other in others:
        receipt = world.receipt(run)
        with pytest.raises(LedgerError, match="E_RECEIPT"):
            open_handle(other, receipt, world)
        with pytest.raises(LedgerError, match="E_RECEIPT"):
            open_handle(run, receipt, world)
    with pytest.raises(InternalError, match="E_INTERNAL"):
        open_handle(run, world.receipt(run, ONE - Fraction(1, 10**9)), world)
    receipt = world.receipt(run)
    world.cells.data_version = "newer"
    with pytest.raises(LedgerError, match="E_RECEIPT"):
        open_handle(run, receipt, world)
    assert world.cells.asked == []


def test_classes_put_cells_together_and_leave_rows_out() -> None:
    world = World(DOMAIN, COUNTS * 10**6)
    run = world.run(ONE)
    run = Run("t", {"a": np.array([1, -1, 0]), "b": np.array([0, 0])}, "laplace", ONE, 1, "")
    assert run.domain == {"a": 2, "b": 1}
    handle = open_handle(run, world.receipt(run), world)
    (found,) = handle.measure([whole(run.domain, "a", "b")], ONE)
    assert found.values == pytest.approx([2e6, 5e6], abs=100)


def test_a_closed_handle_gives_nothing_more() -> None:
    handle = World(DOMAIN, COUNTS).opened(1)
    handle.close()
    assert handle.remaining() == 0
    with pytest.raises(Error):
        handle.total(Fraction(1, 10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_handle_is_refused_in_a_forked_process() -> None:
    handle = World(DOMAIN).opened(1)
    child = os.fork()
    if child == 0:
        try:
            handle.total(ONE)
        except InternalError as error:
            os._exit(7 if error.code == "E_FORK" else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert handle.remaining() == 1


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_handle_is_not_copied(copier: Callable[[object], object]) -> None:
    with pytest.raises(InternalError):
        copier(World(DOMAIN).opened(1))


def reachable(root: object) -> list[object]:
    """Everything that can be reached from an object without passing code and modules."""
    seen: dict[int, object] = {}
    stack = [root]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, type | ModuleType | FunctionType):
            continue
        seen[id(item)] = item
        stack += gc.get_referents(item)
        if isinstance(item, np.ndarray) and item.base is not None:
            stack.append(item.base)
    return list(seen.values())


def test_no_true_answer_is_reachable_from_what_is_returned() -> None:
    counts = np.array([[1, 2], [3, 4], [5, 6]]) * 10**12
    handle = World(DOMAIN, counts).opened(30, c=10**4)
    chosen = handle.select(marginals(), zeros(marginals()), count=2, amount=ONE)
    found = [chosen, handle.measure(marginals(), ONE), handle.total(ONE)]
    true = {int(v) for each in marginals() for v in dense(each, DOMAIN) @ counts.ravel()}
    items = reachable(found)
    assert not any(isinstance(item, TableHandle | World) for item in items)
    arrays = [item for item in items if isinstance(item, np.ndarray)]
    numbers = {v for each in arrays for v in each.ravel().tolist()}
    assert len(arrays) >= 5
    assert not true & (numbers | {item for item in items if isinstance(item, int | float)})
    assert repr(handle) == "<handle on t>"


def test_two_rounds_have_different_noise() -> None:
    handle = World({"a": 1000, "b": 2}).opened(20)
    asked = [whole({"a": 1000}, "a")]
    one, two = (handle.measure(asked, ONE)[0].values for _ in range(2))
    assert (one != two).any()
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.2


@pytest.mark.parametrize("noise", NOISES)
def test_a_run_over_a_real_table_and_a_real_ledger(noise: Noise, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("who,a,b\n" + "".join(f"{i},{i % 3},x\n" for i in range(300)))
    (tmp_path / "t.toml").write_text(
        '[budget]\nepsilon = 3\ndelta = 1e-9\n[table.t]\nsource = "t.csv"\n'
        'privacy_unit = { column = "who", max_rows = 2 }\n[table.t.column]\n'
        'a = { type = "integer", domain = [0, 2] }\nb = { type = "text", domain = ["x", "y"] }\n'
    )
    catalog = read_catalog(tmp_path / "t.toml")
    policy = Policy(catalog.budget.epsilon, catalog.budget.delta)
    ledger = Ledger.create(tmp_path / "ledger", tmp_path / "anchors", policy, "catalog")
    vaults = Vaults(catalog, ledger.salt)
    amount = Fraction(2) if noise == "laplace" else Fraction(1, 20)
    classes = {"a": np.arange(3), "b": np.arange(2)}
    run = Run("t", classes, noise, amount, 2, '{"rounds": 1}')
    if noise == "laplace":
        cost = laplace_cost(policy, amount)
    else:
        cost = gaussian_cost(policy, amount, Fraction(2))
    receipt = ledger.debit(cost, run.fingerprint, vaults.versions(["t"]))
    handle = open_handle(run, receipt, vaults)
    half = amount / 2
    (best,) = handle.select(
        [whole(DOMAIN, "a"), whole(DOMAIN, "b")], [np.zeros(3), np.array([300.0, 0.0])], amount=half
    )
    assert best == 0
    (found,) = handle.measure([whole(DOMAIN, "a")], half)
    assert found.values == pytest.approx([100, 100, 100], abs=20 * found.stddev)
    assert handle.remaining() == 0
    handle.close()
    few = Run("t", classes, noise, amount / 4, 1, '{"rounds": 1}')
    if noise == "laplace":
        cost = laplace_cost(policy, few.amount)
    else:
        cost = gaussian_cost(policy, few.amount, Fraction(1, 2))
    receipt = ledger.debit(cost, few.fingerprint, vaults.versions(["t"]))
    with pytest.raises(InternalError, match="more rows"):
        open_handle(few, receipt, vaults)
    vaults.close()
    assert ledger.verify().entries == 2
