"""The page as a client sees it that is no browser, and as an attacker does."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpsql.errors import UsageError
from dpsql.interrupts import Cancellation
from dpsql.page.browser_sessions import IDLE, LONGEST, MOST_OF_ONE, BrowserSessions
from dpsql.page.serving import Page, open_page
from dpsql.page.sign_in import REFUSED, SignIn
from dpsql.page.site_guard import MOST_BYTES
from dpsql.server.address import Address
from dpsql.server.analyst_session import AnalystSession
from dpsql.server.databases import Databases
from dpsql.server.events import Events
from dpsql.server.handshake import FREE_TRIES, Failures
from dpsql.server.operator_socket import OperatorSocket
from dpsql.server.scram import Verifier
from dpsql.server.users import Users
from tests.support.paged import Knocker, paged
from tests.support.served import PASSWORD, database, write_certificate, write_served

COUNT = "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("paged")


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[Page]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STATE", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(folder / name))
        with paged(write_served(folder)) as found:
            yield found


@pytest.fixture
def ana(page: Page) -> Knocker:
    found = Knocker(page.port)
    assert found.enter().status == 200
    return found


def test_sign_in_and_leave(page: Page) -> None:
    ana = Knocker(page.port)
    caught = ana.enter("Ana")
    assert caught.told == {
        "user": "ana",
        "analyst": "ana",
        "asks": True,
        "curator": False,
        "catalog": "clinic",
        "catalogs": ["clinic"],
    }
    cookie = caught.headers["set-cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
    assert ana.get("/api/visit").status == 200
    before = ana.cookie
    assert ana.post("/api/leave").status == 200
    assert Knocker(page.port, before).get("/api/visit").status == 401


def test_who_is_not_let_in_is_told_one_thing(page: Page) -> None:
    tries = [("ana", "wrong"), ("nobody", PASSWORD), ("eve", PASSWORD), ("", ""), ("a\0b", "x")]
    found = {Knocker(page.port).enter(*each).body for each in tries}
    assert [json.loads(each)["error"]["message"] for each in found] == [REFUSED]
    assert not Knocker(page.port).enter("nobody").headers.get("set-cookie")


def test_an_unknown_name_is_derived_like_a_known_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived: list[int] = []
    derive = Verifier._derive

    def watch(password: str, salt: bytes, iterations: int) -> Verifier:
        derived.append(iterations)
        return derive(password, salt, iterations)

    monkeypatch.setattr(Verifier, "_derive", staticmethod(watch))
    entrance = SignIn(Databases(database(folder / "clinic.toml")))
    assert entrance.sign_in(entrance.databases.first, "ana", "wrong") is None
    known, derived[:] = list(derived), []
    assert entrance.sign_in(entrance.databases.first, "nobody", "wrong") is None
    assert derived == known == [4096]


def test_tries_are_delayed_and_the_delay_is_shared_with_the_wire(folder: Path) -> None:
    failures = Failures(lambda: 0.0)
    entrance = SignIn(Databases(database(folder / "clinic.toml")), failures)
    for _ in range(FREE_TRIES):
        assert entrance.delay("ana", "::1") == 0
        assert entrance.sign_in(entrance.databases.first, "ana", "wrong", "::1") is None
    assert entrance.delay("Ana", "::1") == failures.delay("ana", "::1") > 0
    assert entrance.delay("ana", "192.0.2.1") == 0
    assert entrance.sign_in(entrance.databases.first, "ana", PASSWORD, "::1") is not None


def test_a_script_is_one_charge_and_a_repetition_is_free(ana: Knocker) -> None:
    told = ana.run(f"{COUNT}; SELECT COUNT(*) AS all_of_them FROM t", "0.02")
    first, second = told["results"]
    assert [each["name"] for each in first["columns"]] == ["kind", "n"]
    assert [each["noisy"] for each in first["columns"]] == [False, True]
    assert [row[0] for row in first["rows"]] == ["x", "y", "it's"]
    assert first["stddev"][0] is None
    assert len(first["stddev"][1]) == 3
    assert first["interval"] > 1.5
    assert first["entry"] == second["entry"]
    assert not first["free"]
    assert ana.run(COUNT, "0.02")["results"][0]["free"]


NO_PRICES = (b"0", b'"free"', b'"-1"', b'"1/0"', b'"1e9"', b'" "', b'"%b"' % (b"9" * 99))


def test_a_run_costs_no_more_than_was_shown(ana: Knocker) -> None:
    """Statements and scripts, new and known, at prices below, at and above what they cost."""
    chosen = random.Random(12)
    refused = 0
    for turn in range(24):
        sql = chosen.choice([f"SELECT COUNT(*) AS p{turn % 7} FROM t WHERE size <> {turn % 7}"])
        script = chosen.choice(["{}", "{}; SELECT 1", "SET epsilon = 0.05; {}"]).format(sql)
        forecast = ana.post("/api/forecast", sql=script, epsilon="0.01").told
        cost = Fraction(forecast["price"])
        assert (cost == 0) == forecast["free"]
        price = chosen.choice([None, Fraction(0), cost / 3, cost, 2 * cost])
        shown = Fraction("0.01") if price is None else price
        before = Fraction(ana.get("/api/budget").told["remaining"])
        told = ana.run(script, "0.01", "" if price is None else str(price))
        spent = before - Fraction(ana.get("/api/budget").told["remaining"])
        refused += "error" in told
        assert spent == (0 if "error" in told else cost)
        assert ("error" in told) == (cost > shown), (script, price, told)
        if "error" in told:
            assert told["error"]["code"] == "E_PRICE"
            assert "nothing was charged" in told["error"]["hint"]
    assert refused > 3


def test_what_is_saved_is_what_was_shown(ana: Knocker) -> None:
    assert ana.get("/api/results/1.csv").status == 404
    shown = ana.run(COUNT)["results"][0]
    caught = ana.get("/api/results/1.csv")
    lines = caught.body.decode().splitlines()
    assert lines[0] == "kind,n,n__stddev"
    assert [float(line.split(",")[1]) for line in lines[1:]] == [row[1] for row in shown["rows"]]
    assert caught.headers["content-disposition"] == 'attachment; filename="clinic-1.csv"'
    assert caught.headers["cache-control"] == "no-store"


def test_a_forecast_costs_nothing_and_tells_other_epsilons(ana: Knocker) -> None:
    before = ana.get("/api/budget").told
    told = ana.post("/api/forecast", sql="SELECT SUM(cost) FROM t", epsilon="0.5").told
    assert told["epsilon"] == "0.5"
    assert told["affordable"]
    assert [point[0] for point in told["curve"]] == sorted(point[0] for point in told["curve"])
    assert [0.5, told["rmse"]] in told["curve"]
    assert ana.get("/api/budget").told == before
    assert ana.post("/api/forecast", sql="SHOW tables", epsilon="1").told["error"]["code"] == (
        "E_PARSE"
    )


def test_errors_have_a_place_in_units_of_browsers(ana: Knocker) -> None:
    text = "SELECT '\U0001f600' AS a, COUNT(*) FROM t WHERE nope = 1"
    told = ana.run(text)["error"]
    units = text.encode("utf-16-le")
    assert units[2 * told["start"] : 2 * told["end"]].decode("utf-16-le") == "nope"
    assert told["code"] == "E_UNKNOWN_COLUMN"
    assert "SELECT" in ana.run("SELEC 1")["error"]["message"] + ana.run("SELEC 1")["error"]["hint"]


def test_the_vocabulary_is_of_the_catalog(ana: Knocker) -> None:
    (table,) = ana.get("/api/vocabulary").told["tables"]
    values = {column["name"]: column["values"] for column in table["columns"]}
    assert values["kind"] == ["'x'", "'y'", "'it''s'"]
    assert values["size"] == [str(i) for i in range(10)]
    assert values["cost"] == []
    assert values["day"][0] == "DATE '2024-01-01'"


def test_history_is_one_s_own(page: Page, ana: Knocker) -> None:
    bo = Knocker(page.port)
    bo.enter("bo")
    bo.run("SELECT COUNT(*) AS only_bo FROM t WHERE size = 3")
    ana.run("SELECT COUNT(*) AS only_ana FROM t WHERE size = 4")
    own = {each["sql"] for each in ana.get("/api/history").told["entries"]}
    assert any("only_ana" in each for each in own)
    assert not any("only_bo" in each for each in own)
    shown = ana.run("SHOW ledger")["results"][0]["rows"]
    assert not any("only_bo" in str(row) for row in shown)
    assert any("only_ana" in str(row) for row in shown)
    assert "bo" not in str(ana.run("SHOW budget")["results"][0]["rows"])
    last = ana.get("/api/history").told["entries"][0]["seq"]
    older = ana.get(f"/api/history?before={last}").told["entries"]
    assert all(each["seq"] < last for each in older)


def test_the_curator_sees_all_and_asks_nothing(page: Page, ana: Knocker) -> None:
    ana.run("SELECT COUNT(*) AS seen FROM t WHERE size = 5")
    cora = Knocker(page.port)
    assert cora.enter("cora").told["curator"]
    told = cora.get("/api/curator").told
    assert {each["name"]: each["total"] for each in told["budgets"]} == {"ana": "90", "bo": "1"}
    assert "AS seen" in told["entries"][0]["sql"]
    assert told["entries"][0]["within"] == ["analyst:ana"]
    assert cora.post("/api/forecast", sql=COUNT, epsilon="1").status == 400
    assert cora.post("/api/run", sql=COUNT, epsilon="1", price="").status == 400
    assert cora.get("/api/vocabulary").told["tables"][0]["name"] == "t"
    assert ana.get("/api/curator").status == 403


PATHS = ("visit", "vocabulary", "budget", "history", "curator", "results/1.csv")


@pytest.mark.parametrize("cookie", ["", "dpsql=", "dpsql=forged", "dpsql=" + "A" * 43, "x=y"])
def test_nothing_is_told_without_a_visit(page: Page, cookie: str) -> None:
    eve = Knocker(page.port, cookie)
    assert [eve.get(f"/api/{path}").status for path in PATHS] == [401] * len(PATHS)
    for path in ("run", "forecast", "leave"):
        assert eve.post(f"/api/{path}", sql=COUNT, epsilon="1").status == 401


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"X_Dpsql": None}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80", "Origin": "http://evil.example:80"}, 421),
    ],
)
def test_requests_that_another_site_causes_are_refused(
    page: Page, ana: Knocker, changed: dict[str, str | None], status: int
) -> None:
    before = ana.get("/api/budget").told
    body = json.dumps(
        {"sql": "SELECT COUNT(*) AS forged FROM t", "epsilon": "1", "price": ""}
    ).encode()
    assert ana.send("POST", "/api/run", body, **changed).status == status
    assert ana.get("/api/budget").told == before


def test_what_another_site_could_read_is_refused(ana: Knocker) -> None:
    assert ana.get("/api/history", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors").status == 403
    assert ana.get(
        "/api/history", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors"
    ).status == (403)
    link = ana.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert link.status == 200
    assert "access-control-allow-origin" not in link.headers


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"null", b"1", b"[" * 100_000, b"\xff\xfe"),
        *(b'{"sql": 1, "epsilon": "1"}', b'{"sql": "x"}', b'{"sql": "x", "epsilon": ""}'),
        *(b'{"sql": "x", "epsilon": "1", "more": 1}', b'{"sql": "\\ud800", "epsilon": "1"}'),
        *(b'{"sql": "x", "epsilon": "1; DROP", "price": ""}', b'{"sql": "x", "epsilon": "1"}'),
        *(b'{"sql": "x", "epsilon": "1", "price": %b}' % each for each in NO_PRICES),
    ],
)
def test_bodies_that_are_not_what_they_should_be(ana: Knocker, body: bytes) -> None:
    caught = ana.send("POST", "/api/run", body)
    assert caught.status == 400
    assert caught.told["error"]["code"] == "E_REQUEST"


@pytest.mark.parametrize("epsilon", ["0", "-1", "1e999", "1e-400", "..", "100000", "+", "e"])
def test_epsilons_that_are_none(ana: Knocker, epsilon: str) -> None:
    before = ana.get("/api/budget").told
    assert "error" in ana.run("SELECT COUNT(*) AS e FROM t WHERE size = 9", epsilon)
    assert "error" in ana.post("/api/forecast", sql=COUNT, epsilon=epsilon).told or epsilon == (
        "100000"
    )
    assert ana.get("/api/budget").told == before


def test_what_is_too_long_is_not_read(page: Page, ana: Knocker) -> None:
    assert ana.send("POST", "/api/run", b"x", Content_Length=str(MOST_BYTES + 1)).status == 413
    # Nothing is sent after the head, so that no answer is lost with what nobody reads.
    assert ana.send("POST", "/api/run", b"", Content_Length="9" * 50).status in (400, 413)
    with socket.create_connection(("127.0.0.1", page.port), 60) as chunked:
        head = f"POST /api/run HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nX-Dpsql: page\r\n"
        chunked.sendall(f"{head}Content-Type: application/json\r\n".encode())
        chunked.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(3 * MOST_BYTES // 65536):
                chunked.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
            assert b" 413 " in chunked.recv(4096).split(b"\r\n")[0]
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert ana.get("/api/visit").status == 200


def test_what_is_sent_is_confined(page: Page, ana: Knocker) -> None:
    for path in ("/", "/static/page.js", "/api/visit", "/nowhere", "/static/../serving.py"):
        headers = Knocker(page.port, ana.cookie).get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers
    for path in ("/static/../serving.py", "/static/%2e%2e/serving.py", "/static/", "/..%2fetc"):
        assert ana.get(path).status == 404


def test_hostile_text_comes_back_as_data(ana: Knocker) -> None:
    mean = "</script><img src=x onerror=alert(1)>"
    found = ana.run(f"SELECT '{mean}' AS \"{mean}\", COUNT(*) AS n FROM t")
    caught = ana.post("/api/run", sql=f"SELECT {mean}", epsilon="1", price="")
    assert caught.headers["content-type"] == "application/json"
    assert "error" in caught.told
    assert "error" in found or found["results"][0]["columns"][0]["name"] == mean


def test_a_visit_ends(folder: Path, page: Page) -> None:
    now = [0.0]
    visits = BrowserSessions(12, clock=lambda: now[0])
    entrance = SignIn(Databases(database(folder / "clinic.toml")))
    here = entrance.databases.first
    who = entrance.recognise(here, "ana")
    assert who is not None
    token = visits.begin(who) or ""
    now[0] = IDLE - 1
    assert visits.find(token, here) is not None
    now[0] = 2 * IDLE
    assert visits.find(token, here) is None
    tokens = [visits.begin(who) or "" for _ in range(MOST_OF_ONE + 1)]
    assert [visits.find(each, here) is not None for each in tokens] == [False] + [
        True
    ] * MOST_OF_ONE
    while now[0] < 2 * IDLE + LONGEST:
        now[0] += IDLE - 1
        visits.find(tokens[-1], here)
    assert visits.find(tokens[-1], here) is None
    visits.close()


def test_an_operator_lists_visits_and_ends_them(page: Page, ana: Knocker) -> None:
    here = page.visits.present()[-1].who.database
    server: Any = SimpleNamespace(present=lambda _: [], visits=page.visits, events=Events())
    with socket.socket(socket.AF_UNIX) as listening:
        door = OperatorSocket(server, here, Path(), listening)
        mine = door.answer({"act": "list"})[-1]
        assert (mine["user"], mine["application"], mine["statements"]) == ("ana", "page", 0)
        ana.run("SELECT COUNT(*) AS n FROM t")
        now = door.answer({"act": "list"})[-1]
        assert (now["number"], now["statements"], now["state"]) == (mine["number"], 1, "idle")
        assert door.answer({"act": "end", "numbers": [mine["number"]]}) != []
        assert mine["number"] not in [each["number"] for each in door.answer({"act": "list"})]
    assert ana.post("/api/run", sql="SELECT 1", epsilon="1", price="").status == 401


def test_more_than_may_be_here_are_refused(folder: Path, page: Page) -> None:
    visits = BrowserSessions(1)
    entrance = SignIn(Databases(database(folder / "clinic.toml")))
    ana, bo = (entrance.recognise(entrance.databases.first, each) for each in ("ana", "bo"))
    assert ana is not None
    assert bo is not None
    assert visits.begin(ana)
    assert visits.begin(bo) is None
    visits.close()


def test_another_password_ends_visits(folder: Path, page: Page) -> None:
    users = Users(folder / "clinic.users")
    bo = Knocker(page.port)
    bo.enter("bo")
    assert bo.get("/api/visit").status == 200
    users.put("bo", PASSWORD, new=False)
    assert bo.get("/api/visit").status == 401


def test_a_browser_that_goes_away_ends_what_it_asked(
    page: Page, ana: Knocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def wait(self: AnalystSession, text: str, many: bool, limit: int, wish: Cancellation) -> None:
        begun.set()
        try:
            while True:
                wish.check()
                time.sleep(0.005)
        finally:
            ended.set()

    with monkeypatch.context() as patch:
        patch.setattr(AnalystSession, "run", wait)
        body = json.dumps({"sql": COUNT, "epsilon": "1", "price": ""}).encode()
        away = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
        headers = {"X-Dpsql": "page", "Content-Type": "application/json", "Cookie": ana.cookie}
        away.request("POST", "/api/run", body, headers)
        assert begun.wait(60)
        assert ana.post("/api/run", sql=COUNT, epsilon="1", price="").status == 503
        away.close()
        assert ended.wait(60)
    for _ in range(1000):  # the visit hears of it in the event loop
        if "results" in ana.run(COUNT):
            return
    pytest.fail("the visit is still waiting")


def test_logs_have_names_and_nothing_else(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ana = Knocker(page.port)
        ana.enter()
        ana.run("SELECT COUNT(*) AS secret_words FROM t WHERE kind = 'x'")
        ana.run("SELECT secret_words FROM t")
        ana.post("/api/leave")
    said = [r.getMessage() for r in caplog.records if r.name.startswith(("dpsql", "uvicorn"))]
    who = "user=ana address=127.0.0.1 method=page database=clinic"
    assert [each for each in said if each.startswith("event=sign-in")] == [
        f"event=sign-in {who} outcome=in"
    ]
    assert said[-1] == f"event=end {who} outcome=left"
    assert not any("secret_words" in each or "kind" in each for each in said)


def test_a_client_that_says_nothing_is_hung_up_on(
    folder: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.page.serving.SILENT", 0.05)
    for said in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: "):
        with socket.create_connection(("127.0.0.1", page.port), 60) as silent:
            silent.sendall(said)
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(1) == b""


def test_under_tls_the_cookie_is_for_this_host_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with paged(folder / "clinic.toml", write_certificate(folder)) as page:
        ana = Knocker(page.port, tls=context)
        caught = ana.enter()
        assert caught.headers["set-cookie"].startswith("__Host-dpsql=")
        assert "Secure" in caught.headers["set-cookie"].split("; ")
        assert "Domain" not in caught.headers["set-cookie"]
        assert "max-age" in caught.headers["strict-transport-security"]
        assert ana.get("/api/visit").status == 200
        assert ana.send(
            "POST", "/api/leave", b"{}", Origin=f"http://127.0.0.1:{page.port}"
        ).status == (403)
        with pytest.raises((http.client.HTTPException, OSError)):
            Knocker(page.port).get("/")


def test_it_listens_only_where_it_may(page: Page, folder: Path) -> None:
    class Nobody:
        pass

    with pytest.raises(UsageError, match="need TLS"):
        open_page(Nobody(), Address("0.0.0.0", 0))  # type: ignore[arg-type]
