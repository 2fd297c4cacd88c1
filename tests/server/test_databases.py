"""Several catalogs in one server: each is a database with a ledger, users and rows of its own."""

from __future__ import annotations

import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpsql.dbapi.connection import migrate_ledger
from dpsql.errors import UsageError
from dpsql.page.serving import Page, open_page
from dpsql.server.address import Address
from dpsql.server.catalog_twin import open_twin
from dpsql.server.databases import Database, Databases
from dpsql.server.metrics import open_metrics
from dpsql.server.operator_socket import ask_servers, open_control
from dpsql.server.server import Server
from dpsql.server.users import Users
from tests.server.test_clients import PSQL
from tests.support.paged import Knocker
from tests.support.served import (
    PASSWORD,
    TABLES,
    Client,
    kinds,
    rows,
    salt_of,
    served,
    told,
    write_served,
)
from tests.support.tables import scribe

COUNT = "SELECT COUNT(*) FROM t"
NAMES = ("clinic", "survey", "my trial")
OTHER = "other"


def write_catalog(folder: Path, name: str) -> Path:
    """A catalog of a name, in a folder of its own, with nine times as many rows as the one before.

    Users of all are ana and bo; of ``survey`` dee, of ``my trial`` cy, who may not enter others.
    """
    (folder / name).mkdir()
    written = write_served(folder / name)
    catalog, k = written.with_name(f"{name}.toml"), NAMES.index(name)
    text = written.read_text()
    own = {"survey": "dee", "my trial": "cy"}.get(name)
    written.unlink()
    catalog.write_text(text + (f"[analyst.{own}]\nepsilon = 5\n" if own else ""))
    users = written.with_suffix(".users").rename(catalog.with_suffix(".users"))
    if own:
        Users(users).put(own, PASSWORD, new=True)
    more = TABLES["t"].replace("range(1000)", f"range({1000 * 9**k})")
    scribe().execute(f"COPY ({more}) TO '{folder / name / 't.parquet'}'")
    return catalog


@pytest.fixture
def catalogs(tmp_path: Path) -> list[Path]:
    return [write_catalog(tmp_path, name) for name in NAMES]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    first, *others = [write_catalog(folder, name) for name in NAMES]
    with served(first, open_twin("auto", "clinic"), others=others) as found:
        yield found


@pytest.fixture(scope="module")
def page(site: Server) -> Iterator[Page]:
    found = open_page(site, Address("127.0.0.1", 0))
    yield found
    found.close()


def came(site: Server, user: str, name: str) -> str:
    """The database that somebody comes to by a name; else the state that they are refused by."""
    with Client(site.port, user) as client:
        found = client.start(database=name)
        if found[-1][0] == b"E":
            return told(found)[0]["C"]
        ((asked,),) = rows(client.ask("SELECT current_database()"))
        return (asked or b"").decode()


@pytest.mark.parametrize(
    ("user", "enters"), [("ana", NAMES), ("dee", NAMES[1:2]), ("cy", NAMES[2:])]
)
def test_the_name_of_a_database_chooses_the_catalog(
    site: Server, user: str, enters: tuple[str, ...]
) -> None:
    for name in NAMES:
        wanted = name if name in enters else "28P01"
        assert [came(site, user, each) for each in (name, name.upper())] == [wanted] * 2
    to_first = "clinic" if "clinic" in enters else "28P01"
    assert [came(site, user, each) for each in ("postgres", user)] == [to_first] * 2
    assert came(site, user, OTHER) == ("3D000" if "clinic" in enters else "28P01")


def test_who_names_what_is_no_database_is_told_which_there_are(site: Server) -> None:
    with Client(site.port) as ana:
        (error,) = told(ana.start(database=OTHER))
    assert (error["S"], error["M"]) == ("FATAL", f'database "{OTHER}" does not exist')
    assert error["H"] == "connect to clinic or survey or my trial"


def test_each_has_a_ledger_and_answers_of_its_own(site: Server) -> None:
    """The same words of the same analyst, asked over and over, by one connection after another."""
    found: dict[str, set[int]] = {name: set() for name in NAMES}
    for _ in range(3):
        for name in NAMES:
            with Client(site.port) as ana:
                ana.start(database=name)
                ana.ask("SET epsilon = 5")
                for _ in range(3):
                    ((told_of,),) = rows(ana.ask(COUNT))
                    found[name].add(int(told_of or 0))
    for k, database in enumerate(site.databases):
        (count,) = found[database.name]
        assert abs(count - 1000 * 9**k) < 100
        entries = database.site.engine.entries()
        assert [each.within for each in entries if each.kind == "debit"] == ["analyst:ana"]


def test_a_stranger_cannot_tell_who_is_a_user_where(catalogs: list[Path]) -> None:
    """A name has a salt in each, or one where users are of one file, whether anybody has it."""
    names, asked = ("ana", "dee", "nobody"), (*NAMES, OTHER, "postgres")
    found = []
    for _ in range(2):
        with served(catalogs[0], others=catalogs[1:]) as server:
            found.append([[salt_of(server.port, n, database=d) for d in asked] for n in names])
    assert found[0] == found[1]
    for salts in found[0]:
        assert salts[:1] * 2 == salts[3:]
        assert len(set(salts)) == len(NAMES)
    shared, *others = [each.with_suffix(".users") for each in catalogs]
    shutil.copy(others[0], shared)
    for each in others:
        each.unlink()
        each.symlink_to(shared)
    with served(catalogs[0], others=catalogs[1:]) as server:
        for name in names:
            assert len({salt_of(server.port, name, database=each) for each in asked}) == 1


def listed(site: Server, user: str, name: str) -> list[str]:
    dsn = f"host=127.0.0.1 port={site.port} user={user} password='{PASSWORD}' dbname='{name}'"
    command = [PSQL, "-XAtc", r"\l", dsn]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [each.split("|")[0] for each in found.stdout.splitlines() if each.count("|") > 5]


def test_databases_are_listed_to_those_who_may_enter_them(site: Server) -> None:
    assert listed(site, "ana", "my trial") == sorted(NAMES)
    assert listed(site, "cy", "my trial") == ["my trial"]
    with Client(site.port, "dee") as dee:
        dee.start(database="survey")
        for asked in ("pg_database", "pg_catalog.pg_database", '"pg_catalog"."pg_database"'):
            assert rows(dee.ask(f"SELECT datname FROM {asked} x")) == [[b"survey"]]
        first = site.databases.first
        first.users.put("dee", PASSWORD, new=True)
        assert rows(dee.ask("SELECT datname FROM pg_database")) == [[b"survey"]]  # no analyst
        first.users.remove("dee")
        mine = "SELECT datname FROM pg_database WHERE datname = current_database()"
        assert rows(dee.ask(mine)) == [[b"survey"]]


def test_what_a_curator_does_touches_one(catalogs: list[Path]) -> None:
    with (
        served(catalogs[0], others=catalogs[1:]) as server,
        Client(server.port) as first,
        Client(server.port) as second,
        Client(server.port) as third,
    ):
        for client, name in ((first, "clinic"), (second, "survey"), (third, "my trial")):
            client.start(database=name)
            assert "E" not in kinds(client.ask("SET epsilon = 0.1"))
            assert "E" not in kinds(client.ask(COUNT))
        server.watch.close()
        catalogs[0].write_text("no catalog")
        text = catalogs[1].read_text()
        catalogs[1].write_text(text.replace("domain = [0, 9]", "domain = [0, 8]"))
        migrate_ledger(catalogs[1])
        Users(catalogs[2].with_suffix(".users")).put("ana", "another", new=False)
        server.watch.reload()
        server.watch.look()
        assert rows(first.ask(COUNT))
        for client in (second, third):
            assert told([client.message()])[0]["C"] == "57P01"
        assert server.events.total("reload", "catalog", "failed", "clinic") == 1
        assert server.events.total("reload", "catalog", "done", "survey") == 1
        assert server.events.total("end", "wire", "catalog", "survey") == 1
        assert server.events.total("end", "wire", "user", "my trial") == 1


def test_an_operator_sees_each_by_its_name(catalogs: list[Path]) -> None:
    with served(catalogs[0], others=catalogs[1:]) as server, Client(server.port, "dee") as dee:
        controls = [open_control(server, each) for each in server.databases]
        http = open_metrics("127.0.0.1", 0, server)
        url = f"http://127.0.0.1:{http.server_address[1]}"
        try:
            dee.start(database="survey")
            dee.ask("SET epsilon = 0.5")
            dee.ask(COUNT)
            with urllib.request.urlopen(f"{url}/metrics") as found:
                lines = found.read().decode().splitlines()
            for name, k in (("clinic", 0), ("survey", 1), ("my trial", 0)):
                assert f'dpsql_sessions{{database="{name}"}} {k}' in lines
                assert f'dpsql_charges_total{{database="{name}"}} {k}' in lines
            catalogs[1].with_suffix(".ledger").unlink()
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{url}/health/ready")
            with refused.value as answer:
                assert answer.read() == b"survey: the ledger is not usable\n"
            who = [[each["user"] for each in ask_servers(c, act="list")] for c in catalogs]
            assert who == [[], ["dee"], []]
            ask_servers(catalogs[0], act="end", user="dee")
            assert server.count() == 1
            ask_servers(catalogs[1], act="end", user="dee")
            assert told([dee.message()])[0]["C"] == "57P01"
        finally:
            http.shutdown()
            http.server_close()
            for each in controls:
                assert each is not None
                each.close()


def at(path: str, page: Page, name: str = "ana") -> tuple[Knocker, Any]:
    knocker = Knocker(page.port, path=path)
    return knocker, knocker.enter(name)


def test_the_page_has_a_path_for_each(page: Page, site: Server) -> None:
    trial = "/catalogs/my%20trial"
    cookies = []
    for path, name in (("", "clinic"), ("/catalogs/clinic", "clinic"), (trial, "my trial")):
        ana, caught = at(path, page)
        assert (caught.told["catalog"], caught.told["catalogs"]) == (name, list(NAMES))
        assert b"<!doctype html>" in ana.get("/").body
        assert ana.run("SELECT COUNT(*) AS n FROM t WHERE size = 1")["results"][0]["entry"]
        assert ana.get("/api/visit").told["catalog"] == name
        cookies.append(ana.cookie)
    assert len({each.split("=")[0] for each in cookies}) == 2
    here = Knocker(page.port, "; ".join(cookies[1:]))
    assert here.get("/api/visit").told["catalog"] == "clinic"
    assert here.get(f"{trial}/api/visit").told["catalog"] == "my trial"
    stolen = cookies[1].split("=")[1]
    forged = Knocker(page.port, f"{cookies[2].split('=')[0]}={stolen}")
    assert forged.get(f"{trial}/api/visit").status == 401
    assert at(trial, page, "dee")[1].status == at("/catalogs/survey", page, "cy")[1].status == 401
    assert len(site.databases.first.site.engine.entries()) > 0


def test_a_path_of_no_catalog_is_told_to_those_who_may_come_in(page: Page) -> None:
    found = at("/catalogs/other", page)[1]
    assert (found.status, found.headers.get("set-cookie")) == (404, None)
    assert "clinic or survey or my trial" in found.told["error"]["message"]
    refused = [at(f"/catalogs/{each}", page, "cy")[1] for each in ("other", "clinic")]
    assert len({(each.status, each.body) for each in refused}) == 1
    pages = {Knocker(page.port).get(f"/catalogs/{each}/").body for each in ("survey", "other")}
    assert len(pages) == 1


@pytest.mark.parametrize("names", [("a", "A"), ("a", "b/c"), ("a", "")])
def test_names_are_unlike_each_other(names: tuple[str, ...], catalog: Path) -> None:
    one: Any = None
    with pytest.raises(UsageError, match=r"one name|cannot be the name"):
        Databases(*(Database(each, one, Users(catalog)) for each in names))
