"""The parent of a server: it starts one again, whatever ends it, and says what becomes of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PARENT = """
import logging, sys
from dpsql.server.address import Address
from dpsql.server.supervisor import Supervisor
logging.basicConfig(level=logging.INFO)
command = [sys.executable, "-c", sys.argv[2]]
address = Address("127.0.0.1", int(sys.argv[1]))
sys.exit(Supervisor(command, [address], hung=float(sys.argv[3])).run())
"""
BEGIN = """
import os, signal, socket, subprocess, sys, time
from dpsql.server.supervisor import READY, RELOADED, Supervised
parent = Supervised.find()
listening = socket.socket(fileno=parent.held[0])
"""
ANSWER = """
parent.ready(lambda: True)
connection, _ = listening.accept()
connection.sendall(b"%d %d" % (os.getpid(), parent.restarts))
connection.close()
"""
STAY = """
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
parent.ready(lambda: True)
while True:
    time.sleep(0.05)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def supervised(
    server: str, told: Path | None = None, hung: float = 300.0
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The parent of a server that is a few lines of Python."""
    port = free_port()
    environment = {**os.environ, "NOTIFY_SOCKET": "" if told is None else str(told)}
    command = [sys.executable, "-c", PARENT, str(port), BEGIN + server, str(hung)]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
    try:
        yield parent, port
    finally:
        parent.kill()
        parent.wait()


def ask(port: int) -> list[int]:
    """The process that answers, and how often it was started again."""
    for _ in range(600):
        with suppress(ConnectionError):
            with socket.create_connection(("127.0.0.1", port), 60) as client:
                answer = client.recv(100)
            if answer:
                return list(map(int, answer.split()))
        time.sleep(0.05)
    raise AssertionError("nobody answers")


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1200):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it never comes")


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_server_that_ends_is_started_again_and_who_comes_meanwhile_is_answered(
    end: str, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "n"))
        systemd.settimeout(60)
        with supervised(ANSWER + end, tmp_path / "n") as (parent, port):
            first, *_ = ask(port)
            second, restarts = ask(port)
            assert second != first
            assert restarts >= 1
            parent.send_signal(signal.SIGTERM)
            assert parent.wait(60) in (0, 3, 137)  # it may have died just then
        heard = []
        while "STOPPING=1" not in heard:
            heard.append(systemd.recv(1000).decode())
    assert any(each.startswith("READY=1") for each in heard)
    assert "WATCHDOG=1" in heard


@pytest.mark.parametrize(("status", "expected"), [(7, 7), (0, 1)])
def test_a_server_that_never_begins_ends_it_with_a_status(status: int, expected: int) -> None:
    with supervised(f"sys.exit({status})") as (parent, _):
        assert parent.wait(60) == expected


def test_a_signal_is_passed_on_and_systemd_is_told_when_all_is_read(tmp_path: Path) -> None:
    reload = "signal.signal(signal.SIGHUP, lambda number, frame: parent.tell(RELOADED))\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "n"))
        systemd.settimeout(60)
        with supervised(reload + STAY, tmp_path / "n") as (parent, _):
            while not systemd.recv(1000).startswith(b"READY=1"):
                pass
            parent.send_signal(signal.SIGHUP)
            while not systemd.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC="):
                pass
            while not systemd.recv(1000).startswith(b"READY=1"):
                pass
            parent.send_signal(signal.SIGINT)
            assert parent.wait(60) == 0


def test_a_server_that_hangs_is_killed_and_started_again() -> None:
    hang = ANSWER.replace("lambda: True", "lambda: False") + "time.sleep(60)"
    with supervised(hang, hung=1.0) as (_, port):
        first, _ = ask(port)
        second, restarts = ask(port)
        assert (second != first, restarts) == (True, 1)


def test_what_a_dead_server_leaves_behind_ends_with_it() -> None:
    start = 'left = subprocess.Popen(["sleep", "60"], start_new_session=True)\n'
    answer = ANSWER.replace("os.getpid()", "left.pid")
    with supervised(start + answer + "os.kill(os.getpid(), 9)") as (_, port):
        left, _ = ask(port)
        until(lambda: not is_alive(left))


def test_a_server_without_a_parent_stops_by_itself() -> None:
    with supervised(ANSWER + STAY) as (parent, port):
        server, _ = ask(port)
        assert is_alive(server)
        parent.send_signal(signal.SIGKILL)
        until(lambda: not is_alive(server))
