"""The samplers follow their laws: by statistics, by enumeration, and against OpenDP."""

from __future__ import annotations

import math
import os
from decimal import Decimal, getcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.privacy.noise import samplers
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.exponential_bounds import UniformReal, exp_bounds, inverse_e_word
from dpsql.privacy.noise.samplers import (
    bern_exp,
    bern_exp_one,
    discrete_gaussian,
    discrete_laplace,
    geometric_e,
    uniform_below,
)
from tests.privacy.judge import (
    agrees,
    chi_square,
    gaussian_masses,
    ks_laplace,
    lag_one,
    laplace_masses,
    two_sample,
)
from tests.privacy.seam import OutOfBitsError, Paths, ScriptedBits, SeededBits

MANY = 400_000
WIDE = Fraction(2**70 + 1, 2**68)  # about 4, with terms that only Python integers hold


@pytest.mark.parametrize(
    "scale",
    ["1/10", "1", "27/10", "31/7", "40", "1000000007/10000000", WIDE],
    ids=str,
)
@pytest.mark.slow
def test_laplace_against_its_masses(scale: str | Fraction) -> None:
    law = Fraction(scale)
    many = MANY // 8 if law is WIDE else MANY
    masses = laplace_masses(float(law), int(20 * law) + 20)
    assert agrees(lambda: chi_square(discrete_laplace(Bits(), law, many), masses))


@pytest.mark.parametrize("scale", [10**6, 10**12, Fraction(10**12, 7)], ids=str)
def test_laplace_of_large_scale(scale: Fraction) -> None:
    law = Fraction(scale)
    assert agrees(lambda: ks_laplace(discrete_laplace(Bits(), law, MANY // 4), law))


@pytest.mark.parametrize(
    "sigma2",
    [
        *("1/10", "1/3", "1", "9/4", "100", "536870913/134217728", "1048577", "1000000"),
        *(f"{3**50}/{2**78 + 1}", f"{2**130 + 1}/{2**127}"),
    ],
)
@pytest.mark.slow
def test_gaussian_against_its_masses(sigma2: str) -> None:
    law = Fraction(sigma2)
    many = MANY // 8 if law.numerator > 2**64 else MANY
    masses = gaussian_masses(float(law), int(6 * float(law) ** 0.5) + 6)
    assert agrees(lambda: chi_square(discrete_gaussian(Bits(), law, many), masses))


@pytest.mark.parametrize("sigma2", [2**56, 10**24, 2**56 + 1, Fraction(10**20, 3)], ids=str)
def test_gaussian_of_large_sigma(sigma2: Fraction) -> None:
    from scipy import stats

    def p_value() -> float:
        z = discrete_gaussian(Bits(), Fraction(sigma2), MANY // 4).astype(np.float64)
        return float(stats.kstest(z / float(sigma2) ** 0.5, stats.norm.cdf).pvalue)

    assert agrees(p_value)


def test_numbers_wider_than_64_bits() -> None:
    z = discrete_laplace(Bits(), Fraction(2**100), 4000)
    assert z.dtype == object
    assert all(type(v) is int for v in z)
    scaled = np.array([float(v / 2**100) for v in z])
    assert agrees(lambda: ks_laplace(scaled, Fraction(1)))
    g = discrete_gaussian(Bits(), Fraction(2**200), 4000)
    assert 0.9 < np.mean([(v / 2**100) ** 2 for v in g]) < 1.1


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_neighbours_are_uncorrelated(draw: Any) -> None:
    assert agrees(lambda: lag_one(draw(Bits(), Fraction(25, 2), MANY)))


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("size", [0, 1, 18, 1000, 200_000])
def test_size_and_type(draw: Any, size: int) -> None:
    z = draw(Bits(), Fraction(7, 2), size)
    assert z.shape == (size,)
    assert z.dtype == np.int64


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize(
    "scale", [Fraction(0), Fraction(-1), 0.0, 1.0, 1, float("inf"), float("nan"), None, "1", True]
)
def test_scales_that_are_no_positive_fraction_are_refused(draw: Any, scale: object) -> None:
    with pytest.raises(InternalError):
        draw(Bits(), scale, 3)


@pytest.mark.parametrize("exponent", [60, 90, 2000])
def test_tiny_scales_give_zero_at_once(exponent: int) -> None:
    tiny = Fraction(1, 2**exponent)
    assert not discrete_laplace(Bits(), tiny, 100).any()
    assert not discrete_gaussian(Bits(), tiny, 100).any()


@pytest.mark.parametrize("scale", [3, 1000])
def test_two_samples_with_opendp(scale: int) -> None:
    prelude = pytest.importorskip("opendp.prelude")
    prelude.enable_features("contrib")
    space = prelude.vector_domain(prelude.atom_domain(T=int)), prelude.l1_distance(T=int)
    laplace = prelude.m.make_laplace(*space, scale=float(scale))
    space2 = prelude.vector_domain(prelude.atom_domain(T=int)), prelude.l2_distance(T=float)
    gauss = prelude.m.make_gaussian(*space2, scale=float(scale))
    zeros = [0] * 8000
    for theirs, ours in (
        (laplace, lambda: discrete_laplace(Bits(), Fraction(scale), MANY)),
        (gauss, lambda: discrete_gaussian(Bits(), Fraction(scale**2), MANY)),
    ):
        assert agrees(lambda t=theirs, o=ours: two_sample(np.array(t(zeros)), o()))  # type: ignore[misc]


# ---- by enumeration


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 8])
def test_uniform_below_takes_every_value_from_equally_many_bit_strings(n: int) -> None:
    width = (n - 1).bit_length()
    words = [prefix << (64 - width) if width else 0 for prefix in range(2**width)]
    hits = [0] * n
    again = 0
    for word in words:
        try:
            hits[int(uniform_below(ScriptedBits([word]), n, 1)[0])] += 1
        except OutOfBitsError:
            again += 1
            follow = [int(uniform_below(ScriptedBits([word, w]), n, 1)[0]) for w in words[:n]]
            assert follow == list(range(n))
    assert hits == [1] * n
    assert again == 2**width - n if n > 1 else True


def test_uniform_below_beyond_64_bits() -> None:
    n = 3 << 70
    drawn = uniform_below(SeededBits(1), n, 6000)
    assert all(type(v) is int and 0 <= v < n for v in drawn)
    thirds = np.bincount([v >> 70 for v in drawn], minlength=3)
    assert (abs(thirds - 2000) < 250).all()
    assert len({v & 255 for v in drawn}) == 256


@pytest.mark.parametrize(("num", "den"), [(0, 1), (1, 1), (1, 8), (5, 8), (7, 8), (3, 7)])
def test_bern_exp_has_its_chance_by_every_path(
    num: int, den: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(1e-12)

    def below(_: Bits, n: int, size: int) -> NDArray[np.int64]:
        first = num / n  # only whether the value is below num matters
        return np.array([[0, n - 1][paths.choose([first, 1 - first])] for _ in range(size)])

    monkeypatch.setattr(samplers, "uniform_below", below)
    walks = paths.walk(lambda: bool(bern_exp(SeededBits(0), np.array([num]), den)[0]))
    chance = sum(c for c, true in walks if true)
    assert chance == pytest.approx(math.exp(-num / den), abs=1e-9)


@pytest.mark.parametrize(("t", "s"), [(t, s) for t in range(1, 9) for s in (1, 2, 3, 8)])
def test_laplace_by_every_path(t: int, s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths(1e-10)
    _replace_primitives(paths, monkeypatch)
    law: dict[int, float] = {}
    for chance, drawn in paths.walk(lambda: samplers._laplace(SeededBits(0), t, s, 1)):
        if drawn.size:
            law[int(drawn[0])] = law.get(int(drawn[0]), 0.0) + chance
    kept = sum(law.values())
    masses = laplace_masses(t / s, 12)
    for z in range(-12, 13):
        assert law.get(z, 0.0) / kept == pytest.approx(masses[z + 12], abs=1e-7)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (4, 1), (9, 4), (1, 3), (7, 2), (5, 1)])
def test_gaussian_by_every_path(a: int, b: int, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths(1e-9)
    _replace_primitives(paths, monkeypatch)
    root = math.isqrt(a // b)
    t = root if root * root * b == a else root + 1
    law: dict[int, float] = {}
    for chance, drawn in paths.walk(lambda: samplers._gaussian(SeededBits(0), a, b, t, 1)):
        if drawn.size:
            law[int(drawn[0])] = law.get(int(drawn[0]), 0.0) + chance
    kept = sum(law.values())
    masses = gaussian_masses(a / b, 8)
    for z in range(-8, 9):
        assert law.get(z, 0.0) / kept == pytest.approx(masses[z + 8], abs=1e-6)


def _replace_primitives(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every path be walked; each primitive is tested for its own chance elsewhere."""

    def coin(chance: float) -> bool:
        return paths.choose([chance, 1 - chance]) == 0 if 0 < chance < 1 else chance == 1

    def below(_: Bits, n: int, size: int) -> NDArray[np.int64]:
        return np.array([paths.choose([1 / n] * n) for _ in range(size)], dtype=np.int64)

    def exp_coin(_: Bits, num: NDArray[Any], den: int) -> NDArray[np.bool_]:
        return np.array([coin(math.exp(-int(x) / den)) for x in num], dtype=np.bool_)

    def accepted(
        _: Bits, size: NDArray[Any], slope: int, offset: int, den: int
    ) -> NDArray[np.bool_]:
        return exp_coin(_, (size * slope - offset) ** 2, den)

    def exp_one(_: Bits, size: int) -> NDArray[np.bool_]:
        return np.array([coin(math.exp(-1)) for _ in range(size)], dtype=np.bool_)

    def flips(_: Bits, size: int) -> NDArray[np.bool_]:
        return np.array([coin(0.5) for _ in range(size)], dtype=np.bool_)

    monkeypatch.setattr(samplers, "uniform_below", below)
    monkeypatch.setattr(samplers, "bern_exp", exp_coin)
    monkeypatch.setattr(samplers, "bern_exp_one", exp_one)
    monkeypatch.setattr(samplers, "_accept_by_enclosure", accepted)
    monkeypatch.setattr(SeededBits, "flips", flips)
    monkeypatch.setattr(samplers, "is_invertible", lambda scale: False)


def test_bern_exp_one_compares_with_the_digits_of_one_over_e() -> None:
    first, second, third = (inverse_e_word(i) for i in range(3))
    for words, below in [
        ([first - 1], True),
        ([first + 1], False),
        ([0], True),
        ([2**64 - 1], False),
        ([first, second - 1], True),
        ([first, second + 1], False),
        ([first, second, third - 1], True),
        ([first, second, third + 1], False),
    ]:
        bits = ScriptedBits(words)
        assert bool(bern_exp_one(bits, 1)[0]) is below
        with pytest.raises(OutOfBitsError):
            bits.words(1)


def test_the_digits_of_one_over_e() -> None:
    getcontext().prec = 120
    value = Decimal(-1).exp()
    whole = int(value * 2**256)
    digits = [inverse_e_word(i) for i in range(4)]
    assert sum(d << 64 * (3 - i) for i, d in enumerate(digits)) == whole


@given(st.integers(0, 2**80), st.integers(1, 2**80), st.sampled_from([64, 128, 192]))
def test_bounds_of_the_exponential(num: int, den: int, bits: int) -> None:
    low, high = exp_bounds(num, den, bits)
    assert 0 <= low <= high <= 2**bits
    assert high - low <= 2
    if num < 200 * den:
        getcontext().prec = 150
        value = (-(Decimal(num) / Decimal(den))).exp() * 2**bits
        assert low <= value <= high


def test_geometric_counts() -> None:
    from scipy import stats

    def p_value() -> float:
        seen = np.bincount(np.minimum(geometric_e(Bits(), MANY), 10), minlength=11)
        masses = np.array([math.exp(-v) * (1 - math.exp(-1)) for v in range(10)] + [math.exp(-10)])
        return float(stats.chisquare(seen, masses * MANY).pvalue)

    assert agrees(p_value)


# ---- the enclosure


@pytest.mark.parametrize("sigma2", [Fraction(10**20, 3), Fraction(2**60), Fraction(1048577)])
def test_the_enclosure_decides_as_exact_arithmetic_does(sigma2: Fraction) -> None:
    t = math.isqrt(int(sigma2)) + 1
    common = math.gcd(sigma2.numerator, t * sigma2.denominator)
    slope, offset = t * sigma2.denominator // common, sigma2.numerator // common
    den = 2 * offset * slope * t
    size = np.abs(samplers._laplace(SeededBits(3), t, 1, 3000))
    starts = [int(each) for each in SeededBits(4).halves(size.size)]
    got = samplers._accept_by_enclosure(SeededBits(4), size, slope, offset, den)
    for lane, start in enumerate(starts):
        num = (int(size[lane]) * slope - offset) ** 2
        assert bool(got[lane]) is UniformReal(ScriptedBits([0]), start, 32).is_below_exp(num, den)


def test_words_near_the_bound_are_decided_by_more_bits() -> None:
    sigma2 = 2**60
    slope, offset, den = 1, 2**30, 2**61
    size = np.array([2**30 + 2**29])
    low, _ = exp_bounds((int(size[0]) - offset) ** 2, den, 32)
    fine, _ = exp_bounds((int(size[0]) - offset) ** 2, den, 96)
    edge = fine >> 64
    assert low <= edge
    assert sigma2 == offset**2
    for word, more, accepted in [
        (edge - 20, [], True),
        (edge + 20, [], False),
        (edge, [(fine & (2**64 - 1)) - 4], True),
        (edge, [(fine & (2**64 - 1)) + 4], False),
        (edge, [0], True),
        (edge, [2**64 - 1], False),
    ]:
        bits = ScriptedBits([word, *more])
        got = samplers._accept_by_enclosure(bits, size, slope, offset, den)
        assert bool(got[0]) is accepted


# ---- entropy


def test_every_word_is_handed_out_once() -> None:
    bits = Bits()
    taken = np.concatenate([bits.words(n) for n in (1, 5, 300, 7, 70_000, 3)])
    assert np.unique(taken).size == taken.size


def test_flips_are_fair_and_independent_of_their_number() -> None:
    bits = Bits()
    assert [bits.flips(n).size for n in (0, 1, 63, 64, 65, 1000)] == [0, 1, 63, 64, 65, 1000]
    assert agrees(lambda: float(_binomial(int(bits.flips(MANY).sum()), MANY)))


def _binomial(hits: int, many: int) -> float:
    from scipy import stats

    return float(stats.binomtest(hits, many).pvalue)


def test_bits_cannot_be_copied_or_stored() -> None:
    import copy
    import pickle

    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            attempt(Bits())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_no_words_and_its_own_noise() -> None:
    bits = Bits()
    bits.words(3)
    inherited = [int(w) for w in bits._buffer[bits._next : bits._next + 4]]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        report = "served"
        try:
            bits.words(1)
        except InternalError as error:
            report = f"{error.code} {bits._buffer.size}"
        fresh = discrete_laplace(Bits(), Fraction(10**15), 1)[0]
        os.write(write, f"{report} {fresh}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    report = os.read(read, 1000).decode()
    os.close(read)
    os.close(write)
    assert report.startswith("E_FORK 0 ")
    assert [int(w) for w in bits.words(4)] == inherited
    assert int(report.split()[2]) != int(discrete_laplace(Bits(), Fraction(10**15), 1)[0])


def test_threads_share_bits_without_repeats() -> None:
    from concurrent.futures import ThreadPoolExecutor

    bits = Bits()
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: np.array(bits.words(7)), range(2000)))
    taken = np.concatenate(parts)
    assert np.unique(taken).size == taken.size
