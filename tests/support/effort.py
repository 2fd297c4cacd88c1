"""Counts of random tests: their defaults times EFFORT, and their draws by SEED.

``make test`` asks the defaults; ``EFFORT=10 make test`` asks ten times as much of every random
test, ``make fuzz`` more of those that draw. SEED has all of them draw otherwise.
"""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("EFFORT", "1"))
SHIFT = int(os.environ.get("SEED", "0"))
IS_LARGE = EFFORT > 1
"""Searches without end are random then, and cases that take long are asked as well."""


def effort(default: int) -> int:
    """The count of a generator: its default times EFFORT."""
    return max(1, round(default * EFFORT))


def beyond(each: int) -> int:
    """Cases that nobody asks by default: so many for each EFFORT above 1."""
    return max(0, round(each * (EFFORT - 1)))


def one_in(default: int) -> int:
    """The share that is asked, one in so many: all from an EFFORT of the default on."""
    return max(1, round(default / EFFORT))


def first_seed(default: int) -> int:
    """The seed of a generator: its own, moved by SEED."""
    return default + SHIFT
