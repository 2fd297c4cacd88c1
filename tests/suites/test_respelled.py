"""What is accepted and right in one spelling is so in others, but for those that are listed.

The list may only shrink: a spelling that is answered now has to be taken off it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlglot

import dpsql
from tests.suites.respelled import respelled
from tests.suites.suite import HERE, Asked, difference, open_suite, read_suite
from tests.support.effort import one_in
from tests.support.seam import zero_noise
from tests.support.tables import World

EVERY = one_in(10)
"""How many spellings there are for each that is asked."""
UNEQUAL = HERE / "unequal_spellings.txt"


def spellings(world: World, suite: str) -> Iterator[tuple[str, Asked]]:
    """Other spellings of what a suite answers, by name, that mean the same to DuckDB."""
    names = frozenset(world[0].catalog.tables)
    for asked in read_suite(HERE / f"{suite}.sql"):
        if asked.refused is not None or "DIFFERENTIAL_PRIVACY" in asked.sql:
            continue
        if "ARG_MAX" in asked.sql:  # of rows that are alike it is one or another, to DuckDB, too
            continue
        exact = asked.exact or asked.sql
        try:
            found = list(respelled(asked.sql, names))
        except sqlglot.errors.SqlglotError:
            continue
        for kind, sql in found:
            yield f"{asked.name}: {kind}", replace(asked, sql=sql, exact=exact)


def unequal(world: World, suite: str, every: int) -> Iterator[tuple[str, str | None]]:
    """The names of spellings, each with what is wrong with it, if that is something."""
    for name, asked in list(spellings(world, suite))[::every]:
        try:
            found = difference(*world, asked)
        except dpsql.Error as error:
            yield name, error.code
        else:
            yield name, found


def listed() -> frozenset[str]:
    return frozenset(UNEQUAL.read_text("utf-8").splitlines())


@pytest.mark.parametrize("suite", ["weekly"])
def test_spellings_are_equal_but_for_those_that_are_listed(tmp_path: Path, suite: str) -> None:
    with open_suite(tmp_path, suite) as world, zero_noise():
        world[0].set("mechanism", "identity")
        found = dict(unequal(world, suite, EVERY))
    known = listed()
    worse = [f"{name}: {why}" for name, why in found.items() if why and name not in known]
    better = [name for name, why in found.items() if not why and name in known]
    assert not worse, "\n".join(worse)
    assert not better, "take off the list:\n" + "\n".join(better)


def test_spellings_mean_the_same(tmp_path: Path) -> None:
    with open_suite(tmp_path, "weekly") as (connection, database), zero_noise():
        world = connection, database
        for name, asked in list(spellings(world, "weekly"))[::EVERY]:
            one, two = (database.execute(sql).fetchall() for sql in (asked.sql, asked.exact or ""))
            if asked.exact is not None and "LIMIT" not in asked.sql:
                assert sorted(map(repr, one)) == sorted(map(repr, two)), name
