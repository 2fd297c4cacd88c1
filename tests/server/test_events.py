"""Events: one line and one count of each kind, for everything that a server tells an operator."""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpsql.page.serving import open_page
from dpsql.server import arrivals
from dpsql.server.address import Address
from dpsql.server.arrivals import ENDED
from dpsql.server.events import COUNTED, KINDS, Events, JsonLines, note_refusal
from dpsql.server.metrics import lines
from dpsql.server.operator_socket import ask_servers, open_control
from dpsql.server.reload import Reload
from tests.server.test_stays_up import TRANSIENT, Flaky
from tests.support.paged import Knocker
from tests.support.served import PASSWORD, Client, served

ROOT = Path(__file__).parents[2] / "dpsql"


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Lines of the log as JSON: every line of a server is one of these."""
    ours = [each for each in caplog.records if each.name.startswith("dpsql.")]
    return [json.loads(JsonLines().format(each)) for each in ours]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_one_line_and_one_count(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    facts = {label: f"{label} of it" for label in KINDS[kind].labels}
    with caplog.at_level(logging.INFO):
        (events.count if KINDS[kind].level == COUNTED else events.note)(kind, user="ana", **facts)
    assert events.total(kind) == 1
    told = ",".join(f'{label}="{label} of it"' for label in KINDS[kind].labels)
    metric = f"dpsql_{KINDS[kind].metric}_total" + (f"{{{told}}}" if told else "")
    assert f"{metric} 1" in list(lines(events.metrics()))
    found = lines_of(caplog)
    assert len(found) == (KINDS[kind].level != COUNTED)
    for line in found:
        assert line["event"] == kind
        assert line["user"] == "ana"
        assert facts.items() <= line.items()


@pytest.mark.parametrize("hostile", ['a" b="c', "a\nevent=act", "\u202ea", "a b=c", "x" * 10_000])
def test_no_name_is_taken_for_another_fact(hostile: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Events().note("end", user=hostile, address="::1", outcome="left")
    (record,) = caplog.records
    said = record.getMessage()
    words = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|[^ "]+)(?: |$)', said)
    assert [name for name, _ in words] == ["event", "user", "address", "outcome"]
    assert "\n" not in said
    assert len(said) < 3000
    assert json.loads(JsonLines().format(record))["address"] == "::1"


def test_what_others_log_is_a_line_too() -> None:
    record = logging.LogRecord("other", logging.WARNING, "", 0, "%d words", (2,), None)
    found = json.loads(JsonLines().format(record))
    assert (found["event"], found["logger"], found["message"]) == ("log", "other", "2 words")


def test_turns_are_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    with caplog.at_level(logging.INFO):
        for outcome in ("up", "down", "down", "up", "up", "down"):
            events.bound(user="ana").turn("source", outcome)
    assert [each["outcome"] for each in lines_of(caplog)] == ["down", "up", "down"]


def test_what_was_ended_is_no_refusal() -> None:
    events = Events()
    for state, is_late in (("57014", False), ("57014", True), ("42703", False)):
        note_refusal(events.bound(method="wire"), state, is_late)
    assert events.total("cancel", "wire", "asked") == events.total("cancel", "wire", "timeout") == 1
    assert events.total("refusal", "42703") == events.total("refusal") == 1


def test_all_that_a_session_does_is_told(catalog: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "SELECT COUNT(*) AS secret_words FROM t WHERE kind = 'x'"
    with caplog.at_level(logging.DEBUG), served(catalog) as server:
        page = open_page(server, Address("127.0.0.1", 0))
        control = open_control(server, server.databases.first)
        assert control is not None
        try:
            with Client(server.port) as ana:
                ana.start()
                ana.ask("SET epsilon = 0.5")
                for _ in range(4):  # the second is found; the third and fourth are told again
                    ana.ask(secret)
                ana.ask("SELECT secret_words FROM t")
                ana.ask("SET statement_timeout = 1")
                (number,) = (each["number"] for each in ask_servers(catalog, act="list"))
                ask_servers(catalog, act="end", numbers=[number])
                ana.message()
            knocker = Knocker(page.port)
            knocker.enter()
            knocker.run(secret)
            knocker.run("SELECT secret_words FROM t")
            knocker.post("/api/leave")
            server.failures.first = 0.001
            for _ in range(4):
                Knocker(page.port).enter(password="wrong")
        finally:
            control.close()
            page.close()
    found = lines_of(caplog)
    told = [(each["event"], each.get("method"), each.get("outcome")) for each in found]
    assert told[:2] == [("sign-in", "wire", "in"), ("charge", "wire", None)]
    for each in (
        ("free", "wire", None),
        ("refusal", "wire", None),
        ("act", None, "sessions ended"),
        ("end", "wire", "operator"),
        ("sign-in", "page", "in"),
        ("free", "page", None),
        ("refusal", "page", None),
        ("end", "page", "left"),
        ("sign-in", "page", "failed"),
        ("delay", "page", None),
    ):
        assert each in told, each
    (charge,) = [each for each in found if each["event"] == "charge"]
    assert (charge["user"], charge["address"], charge["entry"]) == ("ana", "127.0.0.1", 1)
    assert server.events.total("free", "wire") == 3
    assert not any("secret_words" in json.dumps(each) or PASSWORD in each for each in found)


@pytest.mark.parametrize("path", sorted([*ROOT.glob("server/*.py"), *ROOT.glob("page/*.py")]))
def test_nothing_else_logs(path: Path) -> None:
    """Every line goes through the one construct: no other module writes to a log."""
    if path.name == "events.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_log = isinstance(node.func.value, ast.Name) and node.func.value.id == "log"
            assert not (is_log and not node.func.attr.endswith("Handler")), path


def test_the_operators_door_stays_open_whatever_accept_does(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "PAUSES", (0.0, 0.0))
    failures: list[BaseException] = [OSError(number, "no") for number in TRANSIENT]
    failures += [MemoryError(), OSError("without a number")]
    with served(catalog) as server:
        control = open_control(server, server.databases.first)
        assert control is not None
        control.listening = Flaky(control.listening, failures)  # type: ignore[assignment]
        try:
            for asked in ({"act": "list"}, {"no": "act"}, {"act": "list"}):
                ask_quietly(catalog, **asked)
            assert ask_servers(catalog, act="list") == []
            assert not failures
        finally:
            control.close()


def ask_quietly(catalog: Path, **asked: object) -> None:
    try:
        ask_servers(catalog, **asked)
    except Exception:
        assert "no" in asked


@pytest.mark.parametrize("number", sorted(ENDED))
def test_a_door_whose_socket_is_gone_ends(catalog: Path, number: int) -> None:
    with served(catalog) as server:
        control = open_control(server, server.databases.first)
        assert control is not None
        control.close()
        control.is_closed = False
        control.listening = Flaky(control.listening, [OSError(number, "gone")])  # type: ignore[assignment]
        control.run()


def test_a_signal_may_come_while_another_is_answered(catalog: Path) -> None:
    """Signals nest at any line of Python: the second must not wait for what the first one has."""
    host: Any = SimpleNamespace(databases=())
    watch, depth = Reload(host), [0]

    def within(frame: Any, event: str, argument: object) -> Any:
        if event == "line" and depth[0] < 1:
            depth[0] += 1
            watch.reload()
            depth[0] -= 1
        return within

    def twice() -> None:
        sys.settrace(within)
        watch.reload()
        sys.settrace(None)

    thread = threading.Thread(target=twice, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
