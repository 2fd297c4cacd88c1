"""What is answered in one spelling is answered alike in others, but for those that are listed.

The list may only shrink: a spelling that is answered alike by now has to be taken off it.
"""

from __future__ import annotations

import pytest
import sqlglot

from tests.gate.record import read_record
from tests.gate.spellings import read_unequal, unequal
from tests.suites.respelled import RESPELLINGS, SEEN, respelled
from tests.support.effort import SHIFT, one_in

WORLDS = ("strangers", "mailorder", "systems", "grammar")
"""Those with most statements, of which a few are asked: to open a world takes as long as that."""
EVERY = one_in(24)
NAMES = {
    "visits": ("patient_id", "ward", "days"),
    "patients": ("patient_id", "age"),
    "orders": ("uid", "total"),
    f"visits{SEEN}": (),
}
SQL = """
WITH z AS (SELECT ward FROM visits) SELECT v.ward, COUNT(*) AS n FROM visits AS v, patients AS p,
(SELECT 1 AS one) AS d WHERE v.patient_id = p.patient_id AND v.days >= 2 AND v.days <= 5
AND v.ward IN (SELECT ward FROM z) AND v.days BETWEEN 1 AND 9 GROUP BY v.ward
"""


def test_spellings_are_equal_but_for_those_that_are_listed() -> None:
    known = read_unequal()
    names = WORLDS if EVERY > 1 else ()
    found = list(unequal(read_record(), every=EVERY, names=names, seed=SHIFT))
    worse = [f"{e.name} {why}\n    {e.text}" for e, why in found if why and e.name not in known]
    better = [each.name for each, why in found if not why and each.name in known]
    assert not worse, "\n".join(worse)
    assert not better, "python -m tests.gate respell:\n" + "\n".join(better)
    assert len(found) > 20


def test_what_is_listed_is_about_statements_that_are_recorded() -> None:
    listed = [name.split(" ") for name in read_unequal()]
    assert {key for _, key, _ in listed} <= read_record().keys()
    assert {kind for _, _, kind in listed} <= {*RESPELLINGS, "crowded"}


@pytest.mark.parametrize("kind", [*RESPELLINGS])
def test_every_kind_of_spelling_is_another_text(kind: str) -> None:
    sql = SQL
    if kind == "derived_ctes":
        sql = SQL.replace("WITH z AS (SELECT ward FROM visits)", "").replace(
            "FROM z", "FROM visits"
        )
    if kind == "cross_joins":
        sql = "SELECT COUNT(*) FROM visits v JOIN patients p ON v.patient_id = p.patient_id"
    texts = dict(respelled(sql, NAMES))
    plain = sqlglot.parse_one(sql, dialect="duckdb").sql("duckdb")
    assert (texts[kind] != plain) == (kind != "written_again")
