"""grammar/dpsql.lark against the binder: case files, what tools emit, and random sentences."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.sql.compiled import Compiled
from tests.support.effort import effort, first_seed
from tests.support.grammar import (
    Sampler,
    accepted_notes,
    agrees,
    derives,
    emitted,
    is_of_catalog,
    mutated,
    parser,
    read_cases,
    rejected_notes,
    rules_of,
    verdict,
)
from tests.support.oracle import VALUES, compare, declare_view, mentioned, open_world
from tests.support.seam import zero_noise
from tests.support.statements import Measured, Statement

pytestmark = pytest.mark.slow

SENTENCES = effort(30)
SEED = first_seed(4)

World = tuple[Connection, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world with forty rows in ``t``."""
    rng = random.Random(11)
    rows = [tuple(rng.choice(values) for values in VALUES) for _ in range(200)]
    with open_world(tmp_path_factory.mktemp("grammar"), rows) as opened:
        yield opened


def test_what_is_accepted_compiles_to_the_products_written_down(world: World) -> None:
    for case in read_cases("accepted.sql"):
        assert list(case.notes) == accepted_notes(world[0], case.sql), case.sql


def test_what_is_refused_is_refused_with_this_code_caret_and_hint(world: World) -> None:
    for case in read_cases("rejected.sql"):
        assert list(case.notes) == rejected_notes(world[0], case.sql), case.sql
        assert any(note.startswith("hint: ") for note in case.notes), case.sql


def test_what_tools_emit_is_accepted(world: World) -> None:
    for case in emitted():
        assert derives(case.sql), case.sql
        found = verdict(world[0], case.sql)
        assert not isinstance(found, dpsql.Error), f"{case.sql}\n{found}"


def test_the_grammar_accepts_what_the_binder_accepts(world: World) -> None:
    for case in [*read_cases("accepted.sql"), *read_cases("rejected.sql")]:
        found = verdict(world[0], case.sql)
        assert agrees(case.sql, found), f"{case.sql}\n{found}"


def test_every_rule_has_an_accepted_example() -> None:
    known = {str(rule.alias or rule.origin.name).split("{")[0] for rule in parser().rules}
    inlined = {"either", "both", "denied", "compared", "tested", "bits", "sum", "product"}
    inlined |= {"signed", "typed", "mixed", "inverted"}
    used = {name for case in read_cases("accepted.sql") for name in rules_of(case.sql)}
    assert {name for name in known if not name.startswith("_")} - inlined <= used


def test_sentences_bind_or_are_refused_and_the_grammar_agrees(world: World) -> None:
    sampler = Sampler(random.Random(SEED))
    accepted = []
    for _ in range(SENTENCES):
        sql = sampler.sentence()
        assert derives(sql), sql
        found = verdict(world[0], sql)
        if isinstance(found, dpsql.Error):
            assert is_of_catalog(found), f"{sql}\n{found}"
        else:
            accepted.append(sql)
    assert len(accepted) >= SENTENCES // 10


def test_statements_with_a_word_out_of_place_are_judged_alike(world: World) -> None:
    rng = random.Random(SEED + 1)
    known = [case.sql for case in [*read_cases("accepted.sql"), *emitted()]]
    for _ in range(SENTENCES):
        sql = mutated(rng.choice(known), rng)
        found = verdict(world[0], sql)
        assert agrees(sql, found), f"{sql}\n{found}"


def test_accepted_sentences_are_answered_as_duckdb_answers_them(world: World) -> None:
    connection, database = world
    sampler = Sampler(random.Random(SEED + 2))
    outcomes: Counter[str] = Counter()
    with zero_noise():
        connection.execute("SET mechanism = identity")
        for _ in range(SENTENCES):
            sql = sampler.select()
            found = verdict(connection, sql)
            if isinstance(found, Compiled):
                outcomes[answered_alike(sql, connection, database)] += 1
    assert outcomes["alike"] >= SENTENCES // 20, outcomes


def answered_alike(sql: str, connection: Connection, database: duckdb.DuckDBPyConnection) -> str:
    """Compare the answers to one statement, unless DuckDB has none."""
    try:
        database.execute(sql)
    except duckdb.Error:
        return "ours alone"
    result = connection.execute(sql).result
    keys = sum(name.startswith("k") for name in result.columns)
    # values that are as frequent as each other are all modes
    loose = Measured("", math.inf if "MODE" in sql else 10_000.0, "mean")
    declare_view(database, mentioned(connection, sql))
    compare(Statement(sql, keys, (loose,) * (len(result.columns) - keys)), result, database, 200)
    return "alike"
