"""A source that cannot be read takes nothing away that was paid for, and tells no folder."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsql.dbapi.site import open_site
from dpsql.errors import DataUnavailable
from dpsql.server.metrics import open_metrics
from dpsql.server.sqlstates import without_folders
from tests.support.served import Client, served, told

PAID = "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind"
NEW = "SELECT COUNT(*) AS n FROM t WHERE size < 3"


def put_away(path: Path) -> None:
    path.rename(path.with_suffix(".away"))


def damage(path: Path) -> None:
    path.write_bytes(b"nothing")


def make_folder(path: Path) -> None:
    put_away(path)
    path.mkdir()


UNREADABLE: dict[str, Callable[[Path], None]] = {
    "gone": put_away,
    "no Parquet": damage,
    "a folder": make_folder,
}


@pytest.mark.parametrize("how", UNREADABLE)
def test_what_is_paid_for_is_answered_without_a_source(catalog: Path, how: str) -> None:
    path = catalog.with_name("t.parquet")
    content = path.read_bytes()
    site = open_site(catalog)
    with site.connect("ana") as before:
        before.set("epsilon", "1")
        first = before.execute(PAID).fetchall()
        assert before.execute(PAID).result.notes == before.execute(PAID).result.notes
        UNREADABLE[how](path)
        site.engine.reopen()
        again = before.execute(PAID)
        assert again.fetchall() == first
        assert any("cannot be read at present" in note for note in again.result.notes)
        assert before.explain(PAID).free
        with pytest.raises(DataUnavailable):
            before.execute(NEW)
        assert before.budget.entries == 1
    site.close()
    site = open_site(catalog)  # another process
    with site.connect("bo") as bo:
        bo.set("epsilon", "1")
        assert bo.execute(PAID).fetchall() == first
        bo.set("fresh", "on")
        with pytest.raises(DataUnavailable):
            bo.execute(PAID)
        bo.set("fresh", "off")
        assert bo.budget.entries == 1
        if path.is_dir():
            path.rmdir()
        path.with_suffix(".away").unlink(missing_ok=True)
        path.write_bytes(content)  # other times, so another version
        bo.execute(NEW)
        assert bo.budget.entries == 2
        assert not bo.engine.unread
    site.close()


def test_clients_are_told_no_folder_and_the_log_is(
    catalog: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = catalog.with_name("t.parquet")
    with served(catalog) as server, Client(server.port) as client:
        client.start()
        client.ask("SET epsilon = 0.5")
        http = open_metrics("127.0.0.1", 0, server)
        url = f"http://127.0.0.1:{http.server_address[1]}/health"
        try:
            assert urllib.request.urlopen(f"{url}/ready").read() == b"ok\n"
            path.rename(path.with_suffix(".away"))
            with caplog.at_level(logging.WARNING, "dpsql.server"):
                found = client.ask(NEW)
            message = told(found)[0]["M"]
            assert "t.parquet" in message
            assert str(path.parent) not in repr(found)
            assert str(path) in caplog.text
            assert urllib.request.urlopen(f"{url}/live").read() == b"ok\n"
            for page in ("", "/ready"):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(url + page)
                assert refused.value.code == 503
                assert refused.value.read().startswith(b"clinic: a source")
                refused.value.close()
            path.with_suffix(".away").rename(path)
            assert urllib.request.urlopen(f"{url}/ready").read() == b"ok\n"
        finally:
            http.shutdown()
            http.server_close()


@pytest.mark.parametrize(
    "text",
    [
        "table 't', source '/data/a b/t.parquet': gone",
        'source "/it\'s/t.parquet": gone',
        "its columns differ from those of '/x/y/t.parquet'",
        "spill = '/x/y/t.parquet' is no folder",
        "(its ledger is /x/y/t.parquet), or use that one",
        "remove /x/y/t.parquet",
    ],
)
def test_folders_are_left_out_of_any_text(text: str) -> None:
    found = without_folders(text)
    assert "t.parquet" in found
    assert "/" not in found


@pytest.mark.parametrize(
    "text", ["source 'postgresql://clinic/visits'", "1 / 2 and 3/4", "dpsql init FILE"]
)
def test_what_is_no_folder_stays(text: str) -> None:
    assert without_folders(text) == text
