"""Bounds of exponentials in exact integers, and uniform reals that are known as far as need be."""

from __future__ import annotations

from functools import cache

from dpsql.privacy.noise.entropy import Bits


def exp_bounds(num: int, den: int, bits: int) -> tuple[int, int]:
    """Return integers lo <= exp(-num/den) * 2^bits <= hi that are nearly equal.

    ``num`` >= 0 and ``den`` > 0. Every rounding is directed, so the bounds hold exactly.

    >>> exp_bounds(0, 1, 8)
    (255, 256)
    """
    whole, rest = divmod(num, den)
    # e^-whole is below 2^-bits then.
    if whole > bits:
        return 0, 1
    # Each product below rounds by a unit or two: these bits keep all of that far below one of
    # ``bits``.
    guard = bits + 2 * whole.bit_length() + 32
    low, high = _fraction_bounds(rest, den, guard)
    one_low, one_high = _one_bounds(guard)
    for _ in range(whole):
        low, high = low * one_low >> guard, (high * one_high >> guard) + 1
    shift = guard - bits
    return low >> shift, min(1 << bits, (high >> shift) + 1)


@cache
def inverse_e_word(index: int) -> int:
    """Return the 64 bits of 1/e after the first 64 * index bits.

    >>> hex(inverse_e_word(0))
    '0x5e2d58d8b3bcdf1a'
    """
    bits = 64 * (index + 1)
    extra = 64
    while True:
        low, high = exp_bounds(1, 1, bits + extra)
        # Both bounds begin with the same word, so it is that of 1/e; near a carry more bits decide.
        if low >> extra == high >> extra:
            return (low >> extra) & (2**64 - 1)
        extra += 64


@cache
def _one_bounds(bits: int) -> tuple[int, int]:
    return _fraction_bounds(1, 1, bits)


def _fraction_bounds(num: int, den: int, bits: int) -> tuple[int, int]:
    """Bound exp(-num/den) * 2^bits for 0 <= num <= den by its alternating series.

    Each term is rounded down once and passes less than all of its own error on, so no term is
    off by more than 2; the terms left out add less than the first of them.
    """
    term = total = 1 << bits
    count = 0
    while term:
        count += 1
        term = term * num // (den * count)
        total += term if count % 2 == 0 else -term
    slack = 2 * count + 4
    return max(0, total - slack), min(1 << bits, total + slack)


class UniformReal:
    """A uniform real in [0, 1) of which the first ``width`` bits are ``word``; more are drawn.

    Guarantee: what two questions say of it agrees, since bits that were drawn stay.
    """

    __slots__ = ("_bits", "width", "word")

    def __init__(self, bits: Bits, word: int, width: int) -> None:
        self._bits, self.word, self.width = bits, word, width

    def extend(self) -> None:
        """Draw 64 more bits."""
        self.word = self.word << 64 | int(self._bits.words(1)[0])
        self.width += 64

    def is_below_exp(self, num: int, den: int) -> bool:
        """Say whether it is below exp(-num / den), num >= 0 and den > 0."""
        while True:
            low, high = exp_bounds(num, den, self.width)
            if self.word < low:
                return True
            if self.word >= high:
                return False
            self.extend()
