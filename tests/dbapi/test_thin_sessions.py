"""Releases that one session has paid for cost the others nothing: work is counted, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpsql.answer import codec, implied, store
from dpsql.dbapi.site import open_site
from dpsql.plan.request import Request
from tests.support.tables import write_tables

COLUMNS = [f"c{i}" for i in range(24)]
CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4

[ledger]
anchor = "anchors"

[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
""" + "\n".join(f'{name} = {{ type = "integer", domain = [0, 3] }}' for name in COLUMNS)
LISTED = ", ".join(f"(i + {k}) % 4 AS {name}" for k, name in enumerate(COLUMNS))
TABLES = {"t": f"SELECT {LISTED} FROM range(50) r(i)"}


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the releases that are decoded, and those that are compared with a request."""
    found = Counter[str]()
    decode, imply = codec.decode, implied.imply

    def decoded(body: bytes) -> codec.Release:
        found["decoded"] += 1
        return decode(body)

    def compared(
        request: Request, name: str, release: codec.Release
    ) -> implied.ImpliedRelease | None:
        found["compared"] += 1
        return imply(request, name, release)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "decode", decoded)
        patch.setattr(implied, "imply", compared)
        yield found


def sql(name: str, value: int) -> str:
    return f"SELECT COUNT(*) FROM t WHERE {name} = {value}"


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    write_tables(tmp_path, CATALOG, TABLES).close()
    return tmp_path / "t.toml"


def work_of(path: Path, sessions: int) -> Counter[str]:
    """Ask distinct statements in turns, and count what the last ones take."""
    with counting() as found:
        site = open_site(path)
        asked = [site.connect() for _ in range(sessions)]
        for i, name in enumerate(COLUMNS):
            session = asked[i % sessions]
            session.set("epsilon", "1")
            session.execute(sql(name, 1))
        for session in asked:
            session.close()
        site.close()
    return found


def test_sessions_decode_and_compare_nothing_of_each_other(tmp_path: Path) -> None:
    counts = []
    for sessions in (1, 12):
        folder = tmp_path / str(sessions)
        folder.mkdir()
        write_tables(folder, CATALOG, TABLES).close()
        counts.append(work_of(folder / "t.toml", sessions))
    assert counts[0] == counts[1] == Counter()


def test_releases_of_before_are_decoded_once_and_found_by_what_they_are_about(
    catalog: Path,
) -> None:
    work_of(catalog, 1)
    with counting() as found:
        site = open_site(catalog)
        for name in COLUMNS:
            with site.connect() as session:
                session.set("epsilon", "1")
                result = session.execute(sql(name, 1)).result
                assert result.cost is not None
                assert result.cost.free
                again = session.execute(f"SELECT COUNT(*) + 1 FROM t WHERE {name} = 1").result
                assert again.cost is not None
                assert again.cost.free
        site.close()
    assert found["decoded"] == len(COLUMNS)
    assert found["compared"] <= 2 * 2 * len(COLUMNS)


def test_a_release_that_takes_the_name_of_another_is_looked_at_anew(catalog: Path) -> None:
    """One request is measured again: what was known of the earlier release says nothing of it."""
    site = open_site(catalog)
    with site.connect() as one, site.connect() as two:
        for session in (one, two):
            session.set("epsilon", "1")
        one.execute(sql("c1", 1))
        two.set("fresh", "on")
        paid = two.execute(sql("c1", 1)).result
        two.set("fresh", "off")
        assert paid.receipt is not None
        for session in (one, two):
            found = session.execute(sql("c1", 1)).result
            assert found.receipt is not None
            assert found.receipt.seq == paid.receipt.seq
    site.close()
