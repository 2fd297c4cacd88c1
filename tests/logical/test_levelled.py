"""Levels say of the statements of the gate what today's front says, but for what is listed."""

from __future__ import annotations

from collections import Counter

from tests.gate.record import read_record
from tests.logical.levelled import levelled, read_unlike
from tests.support.effort import SHIFT, one_in

EVERY = one_in(24)
MOST = {"lax": 151, "code": 9, "caret": 11, "lost": 4}
"""Numbers of statements that differ in each way: this may only shrink.

Three of those that are lost have constants alone, and are answered before there is a plan.
"""


def test_levels_say_what_the_front_says_but_for_what_is_listed() -> None:
    known = read_unlike()
    found = list(levelled(every=EVERY, seed=SHIFT))
    unlike = [each for each in found if each.kind not in ("alike", "unbound")]
    worse = [
        f"{each.key} {each.kind}: {each.today} -> {each.now}\n    {each.sql}"
        for each in unlike
        if known.get(each.key) != each.kind
    ]
    better = [each.key for each in found if each.kind == "alike" and each.key in known]
    assert not worse, "\n".join(worse)
    assert not better, "python -m tests.gate levels:\n" + "\n".join(better)
    assert len(found) > 40


def test_what_is_listed_is_recorded_and_no_more_than_it_was() -> None:
    known = read_unlike()
    assert known.keys() <= read_record().keys()
    assert Counter(known.values()) == MOST
