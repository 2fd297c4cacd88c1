"""Statements are asked once which job they are, and every job takes the one journey."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import joint_terms, parse_script
from dpsql.engine.clip import ClippingJob
from dpsql.engine.clipped_workload import ThresholdJob
from dpsql.engine.engine import Membrane
from dpsql.engine.job import Job
from dpsql.engine.learn import LearnedWorkloadJob
from dpsql.engine.matrix import WorkloadJob
from dpsql.engine.statements import PublicJob, read_job
from dpsql.errors import LedgerError
from tests.engine.test_clip import asked, opened

GROUPED = "sex, SUM(pay), COUNT(*) FROM t GROUP BY sex"
KINDS = {
    "SELECT COUNT(*) FROM t WHERE FALSE": PublicJob,
    f"SELECT {GROUPED}": WorkloadJob,
    asked("SUM(pay) FROM t", clip="svt"): ClippingJob,
    asked(GROUPED, clip="svt"): ThresholdJob,
    asked(GROUPED, clip=50): WorkloadJob,
    asked("sex, COUNT(*) FROM t GROUP BY sex", mechanism="mwem"): LearnedWorkloadJob,
}
"""Statements on a table with a bounded measure, and what answers them."""


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Connection]:
    with opened(tmp_path / "t") as connection:
        connection.set("epsilon", "1")
        yield connection


def job_of(connection: Connection, sql: str) -> Job[Any]:
    statements = parse_script(sql)
    terms = joint_terms(connection.terms, statements)
    return read_job(connection.engine, connection.engine.compile(statements), terms)


@pytest.mark.parametrize("sql", KINDS)
def test_the_engine_takes_every_job_once(table: Connection, sql: str) -> None:
    job = job_of(table, sql)
    assert type(job) is KINDS[sql]
    assert table.budget.entries == 0
    cost = 0 if isinstance(job, PublicJob) else 1
    for _ in range(2):
        (result,) = table.engine.run(job_of(table, sql))
        assert table.budget.spent_epsilon == cost
    assert (result.cost is None) is (cost == 0)
    # A search that hit nothing is followed by a second one, with a debit of its own.
    assert table.budget.entries in ({2, 3} if isinstance(job, ThresholdJob) else {cost})


@pytest.mark.parametrize("sql", [sql for sql, kind in KINDS.items() if kind is not PublicJob])
def test_what_a_job_refuses_is_refused_before_a_debit(table: Connection, sql: str) -> None:
    job = job_of(table, sql)
    with (
        mock.patch.object(Membrane, "afford", side_effect=LedgerError("E_LEDGER_IO", "x")),
        pytest.raises(LedgerError),
    ):
        table.engine.run(job)
    assert table.budget.entries == 0
