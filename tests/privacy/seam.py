"""Bits that are not random: the only way to repeat or steer noise, and it lives in the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from dpsql.privacy.noise.entropy import Bits, Words

T = TypeVar("T")


class SeededBits(Bits):
    """Bits from a seeded generator, for repeatable tests."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def _draw(self, count: int) -> Words:
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)


class ScriptedBits(Bits):
    """Bits that hand out given words in order, and nothing after them."""

    def __init__(self, words: list[int]) -> None:
        super().__init__()
        self._script = words

    def words(self, count: int) -> Words:
        """Return the next words of the script."""
        if count > len(self._script):
            raise OutOfBitsError
        taken, self._script = self._script[:count], self._script[count:]
        return np.array(taken, dtype=np.uint64)


class OutOfBitsError(Exception):
    """A script of bits has come to its end."""


class Paths:
    """Walks every path of a program whose random choices have known chances.

    ``choose`` takes the chances of each option and returns the option to take on this walk.
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self._script: list[int] = []
        self._place = 0
        self._widths: list[int] = []
        self.chance = 1.0
        self.lost = 0.0

    def choose(self, chances: list[float]) -> int:
        """Return the option of this walk; give up a walk that has become too unlikely."""
        if self._place == len(self._script):
            self._script.append(0)
            self._widths.append(len(chances))
        option = self._script[self._place]
        self._place += 1
        self.chance *= chances[option]
        if self.chance < self._least:
            raise OutOfBitsError
        return option

    def walk(self, program: Callable[[], T]) -> Iterator[tuple[float, T]]:
        """Yield (chance, result) of every path; ``lost`` sums the chances of those given up."""
        while True:
            self._place, self.chance = 0, 1.0
            try:
                result = program()
            except OutOfBitsError:
                self.lost += self.chance
            else:
                yield self.chance, result
            del self._script[self._place :], self._widths[self._place :]
            while self._script and self._script[-1] + 1 == self._widths[-1]:
                self._script.pop()
                self._widths.pop()
            if not self._script:
                return
            self._script[-1] += 1
