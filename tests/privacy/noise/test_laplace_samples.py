"""Samples by inversion: what floating point decides is what exact arithmetic decides."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsql.privacy.noise import laplace_samples
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.exponential_bounds import UniformReal, exp_bounds
from dpsql.privacy.noise.laplace_samples import (
    ERROR,
    FEWEST,
    HALVES,
    LEAST,
    MOST,
    SHORT,
    UNIFORM,
    exact_magnitude,
    is_invertible,
    laplace_by_inversion,
    magnitudes,
)
from tests.privacy.judge import agrees, chi_square, ks_laplace, laplace_masses
from tests.privacy.seam import OutOfBitsError, ScriptedBits, SeededBits

SCALES = [
    *(FEWEST, Fraction(1, 10), Fraction(1), Fraction(27, 10), Fraction(1000, 7)),
    *(Fraction(2**29 + 1, 2**20), Fraction(2**20), Fraction(3**21, 2), MOST),
    Fraction(2**70 + 1, 2**68),
]
WIDTHS = [(scale, UNIFORM) for scale in SCALES]
WIDTHS += [(scale, SHORT) for scale in (*SCALES, HALVES) if scale <= HALVES]
"""Scales, and how many bits their lanes begin with."""
scales = st.fractions(FEWEST, MOST, max_denominator=2**40)


def by_decimals(word: int, width: int, scale: Fraction) -> int:
    """The same count from 60 decimal places, of the middle of what the bits may still be."""
    with localcontext() as context:
        context.prec = 60
        uniform = (2 * Decimal(word) + 1) / Decimal(2) ** (width + 1)
        return math.floor(-uniform.ln() * scale.numerator / scale.denominator)


def near_boundaries(scale: Fraction, seed: int, width: int) -> list[int]:
    """Words at, just below and just above the uniform numbers at which a count changes."""
    rng = np.random.default_rng(seed)
    most = min(16 * scale, Fraction(10**12))
    counts = {1 + int(each * float(most)) for each in rng.random(12) ** 3}
    words = set()
    for count in counts:
        edge = exp_bounds(count * scale.denominator, scale.numerator, width)[0]
        words |= {edge + step for step in (-(1 << 20), -2, -1, 0, 1, 2, 1 << 20)}
    return sorted(word for word in words if 0 <= word < 1 << width)


@pytest.mark.parametrize(("scale", "width"), WIDTHS, ids=str)
def test_lanes_are_decided_as_exact_arithmetic_decides(scale: Fraction, width: int) -> None:
    drawn = SeededBits(5).halves(400) if width == SHORT else SeededBits(5).words(400)
    words = [int(word) >> 1 for word in drawn]
    words += [0, 1, (1 << width) - 1, int(LEAST * 2**width) - 1, int(LEAST * 2**width)]
    words += near_boundaries(scale, 7, width)
    found = magnitudes(SeededBits(6), np.array(words, dtype=drawn.dtype), scale, width)
    for word, count in zip(words, found.tolist(), strict=True):
        low = 2 * word  # both ends of what the bits that are not drawn leave open
        least = by_decimals(((low + 2) << 200) - 1, width + 201, scale)
        most = by_decimals(low << 200, width + 201, scale)
        assert least <= count <= (most if word else count)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scales, st.integers(0, 2**63 - 1), st.integers(0, 2**64 - 1))
def test_exact_arithmetic_agrees_with_decimals(scale: Fraction, word: int, more: int) -> None:
    uniform = UniformReal(ScriptedBits([more, *[2**63] * 9]), word, UNIFORM)
    count = exact_magnitude(uniform, scale)
    assert count == by_decimals(uniform.word, uniform.width, scale)


def boundary(scale: Fraction, count: int) -> tuple[int, int]:
    """The bits of the uniform number at which a count begins: those of a word, and 64 more."""
    fine = exp_bounds(count * scale.denominator, scale.numerator, UNIFORM + 64)[0]
    return fine >> 64, fine & (2**64 - 1)


BOUNDARIES = [
    (scale, count)
    for scale in SCALES
    for count in (1, 2, 7)
    if boundary(scale, count)[0] >= LEAST * 2**UNIFORM and 8 < boundary(scale, count)[1] < 2**64 - 8
]
"""Counts that begin where floating point is asked, within a word."""


@pytest.mark.parametrize(("scale", "count"), BOUNDARIES, ids=str)
def test_a_word_on_a_boundary_is_decided_by_more_bits(scale: Fraction, count: int) -> None:
    edge, rest = boundary(scale, count)
    starts = np.array([edge], dtype=np.uint64)
    assert magnitudes(ScriptedBits([rest - 4]), starts, scale)[0] == count
    assert magnitudes(ScriptedBits([rest + 4]), starts, scale)[0] == count - 1
    with pytest.raises(OutOfBitsError):
        magnitudes(ScriptedBits([]), starts, scale)


@pytest.mark.parametrize(("scale", "count"), BOUNDARIES, ids=str)
def test_half_a_word_on_a_boundary_is_decided_by_the_other_half(
    scale: Fraction, count: int
) -> None:
    edge, rest = boundary(scale, count)
    starts, left = np.array([edge >> 32], dtype=np.uint32), edge % 2**32
    for step, found in ((-4, count), (4, count - 1)):
        if 0 <= left + step < 2**32 and scale <= HALVES:
            bits = ScriptedBits([left + step, *[rest] * 2])
            assert magnitudes(bits, starts, scale, SHORT)[0] == found
    if scale <= HALVES:
        assert magnitudes(ScriptedBits([left, rest - 4]), starts, scale, SHORT)[0] == count
        assert magnitudes(ScriptedBits([left, rest + 4]), starts, scale, SHORT)[0] == count - 1
        with pytest.raises(OutOfBitsError):
            magnitudes(ScriptedBits([]), starts, scale, SHORT)


def test_logarithms_are_far_within_what_is_allowed_for() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.random(3000)
    drawn = np.concatenate([drawn, 1 - drawn[:1500] * 2.0 ** -rng.integers(1, 50, 1500)])
    drawn = np.concatenate([drawn, drawn[:1500] * 2.0 ** -rng.integers(1, 16, 1500)])
    drawn = drawn[drawn >= LEAST]
    found = -np.log(drawn)  # an array of them, as the lanes are: single ones may differ
    with localcontext() as context:
        context.prec = 40
        exact = [-Decimal(float(each)).ln() for each in drawn]
        off = [abs(Decimal(float(f)) - e) for f, e in zip(found, exact, strict=True)]
        allowed = [Decimal(ERROR) * (1 + e) for e in exact]
    assert max(o / a for o, a in zip(off, allowed, strict=True)) < Decimal("0.02")


def test_the_sign_is_the_last_bit_and_one_zero_is_thrown_away() -> None:
    for scale, width in ((Fraction(3), SHORT), (HALVES + 1, UNIFORM)):
        edge = exp_bounds(scale.denominator, scale.numerator, width)[0]
        nothing, something = (edge + (1 << width)) // 2, edge - (edge >> 25)
        asked = [nothing << 1, (nothing << 1) + 1, something << 1, (something << 1) + 1]
        if width == SHORT:
            asked = [first + (second << 32) for first, second in (asked[:2], asked[2:])]
        assert laplace_by_inversion(ScriptedBits(asked), scale, 4).tolist() == [0, 1, -1]


def test_every_word_of_a_short_width_has_its_share() -> None:
    width, scale = 10, Fraction(5, 2)
    counts = np.zeros(256)
    for word in range(1 << width):
        counts[exact_magnitude(UniformReal(ScriptedBits([1] * 9), word, width), scale)] += 1
    masses = np.exp(-np.arange(256) / 2.5) * (1 - math.exp(-1 / 2.5))
    assert np.abs(counts / 2**width - masses).max() < 2.0 ** -(width - 1)


@pytest.mark.parametrize("scale", SCALES[1:4], ids=str)
def test_the_law_of_small_scales(scale: Fraction) -> None:
    masses = laplace_masses(float(scale), int(20 * scale) + 20)
    assert agrees(lambda: chi_square(laplace_by_inversion(Bits(), scale, 400_000), masses))


@pytest.mark.parametrize("scale", [Fraction(2**20), HALVES, HALVES + 1, MOST], ids=str)
def test_the_law_of_large_scales(scale: Fraction) -> None:
    assert agrees(lambda: ks_laplace(laplace_by_inversion(Bits(), scale, 50_000), scale))


def test_few_lanes_are_left_to_exact_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    left = 0

    def counted(uniform: UniformReal, scale: Fraction) -> int:
        nonlocal left
        left += 1
        return exact_magnitude(uniform, scale)

    monkeypatch.setattr(laplace_samples, "exact_magnitude", counted)
    for scale, width in WIDTHS:
        left = 0
        drawn = SeededBits(8).halves(20_000) if width == SHORT else SeededBits(8).words(20_000)
        magnitudes(SeededBits(9), drawn >> drawn.dtype.type(1), scale, width)
        assert left < 200


def test_few_halves_of_words_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, asked = SeededBits(8).halves(20_000) >> np.uint32(1), []
    halves = Bits.halves

    def counted(bits: Bits, count: int) -> NDArray[np.uint32]:
        asked.append(count)
        return halves(bits, count)

    monkeypatch.setattr(Bits, "halves", counted)
    magnitudes(SeededBits(9), starts, HALVES, SHORT)
    assert len(starts) / 50 < asked[0] < len(starts) / 20


def test_which_scales_are_inverted() -> None:
    assert is_invertible(FEWEST)
    assert is_invertible(MOST)
    assert not is_invertible(FEWEST / 2)
    assert not is_invertible(MOST + 1)
