"""Deployment: the image and the unit say what can be run, and it runs on a read-only root."""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dpsql.ui.serve import serve
from tests.support import confined
from tests.support.served import PASSWORD, write_certificate, write_served

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTEXT = ("/srv/dpsql", "/var/lib/dpsql", "/tmp")
"""Folders that may be written to."""


def instructions() -> list[tuple[str, str]]:
    """The instructions of the image, with lines that go on put together."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    text = "\n".join(each for each in lines if not each.startswith("#"))
    return re.findall(r"^([A-Z]+) (.*)$", text.replace("\\\n", ""), re.MULTILINE)


def only(name: str) -> str:
    """The last of an instruction, which is the one that holds."""
    return [text for each, text in instructions() if each == name][-1]


def copied() -> list[str]:
    """The files of the repository that an image is made of."""
    found = [text.split() for each, text in instructions() if each == "COPY"]
    return [path for words in found if not words[0].startswith("--") for path in words[:-1]]


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(DEPLOY / "dpsql.service")
    return found


def test_the_image_is_of_named_releases_and_of_nobody_s_user() -> None:
    bases = [text.split()[0] for each, text in instructions() if each == "FROM"]
    assert all(re.fullmatch(r"[\w/-]+:\d[\w.-]+", each) for each in bases)
    user, _, group = only("USER").partition(":")
    assert int(user) >= 1000
    assert int(group) >= 1000
    order = [each for each, _ in instructions()]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert f"useradd --uid {user} " in (DEPLOY / "Dockerfile").read_text()
    assert not any(each == "ADD" or "curl" in text for each, text in instructions())


def test_the_image_is_made_of_what_is_there_and_let_through() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert ignored[0] == "*"
    for path in copied():
        assert (ROOT / path).exists()
        assert any(fnmatch.fnmatch(path, each[1:]) for each in ignored if each[0] == "!")


def test_what_is_started_has_options_that_there_are() -> None:
    image = [*json.loads(only("ENTRYPOINT")), *json.loads(only("CMD"))]
    for words in (image, shlex.split(unit()["Service"]["ExecStart"])):
        assert [Path(words[0]).name, words[1]] == ["dpsql", "serve"]
        found = serve.make_context("serve", words[2:]).params
        assert str(found["catalogs"][0]).startswith("/srv/dpsql/")
        assert found["tls_cert"]


def test_the_unit_can_write_where_it_has_to() -> None:
    service = unit()["Service"]
    assert service["Type"] == "notify-reload"
    places = {f"/var/lib/{service['StateDirectory']}", f"/var/cache/{service['CacheDirectory']}"}
    places.add(service["ReadWritePaths"])
    written = [each.split("=")[1] for each in service["Environment"].split()]
    assert {*written, "/srv/dpsql"} == places
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "verify", str(DEPLOY / "dpsql.service")]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        unlike = [each for each in said.splitlines() if "not executable" not in each]
        assert [each for each in unlike if "notify-reload" not in each] == []  # of release 253


@pytest.fixture
def place() -> Iterator[Path]:
    """Short, since sockets have names of at most 107 bytes."""
    with tempfile.TemporaryDirectory() as found:
        yield Path(found)


def installed(place: Path) -> Path:
    """The packages that are installed from the copied files, as far as the project declares it."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    data = declared["package-data"].items()
    kept = {path for package, each in data for path in whole(Path(*package.split(".")), *each)}
    for name in copied():
        kept |= set(whole(Path(name), "**/*.py", "**/*.pyc"))  # as pip compiles them
    for path in kept:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, place / path)
    return place


def whole(folder: Path, *patterns: str) -> Iterator[Path]:
    for each in patterns:
        yield from (path.relative_to(ROOT) for path in (ROOT / folder).glob(each))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.mark.slow
@pytest.mark.skipif(not confined.is_possible(), reason="Linux 6.2 with landlock")
def test_the_image_s_command_serves_on_a_root_that_nobody_writes_to(place: Path) -> None:
    (place / "src").mkdir()
    packages = installed(place / "src")
    before = {*packages.rglob("*")}
    ports = {"5432": str(free_port()), "9464": str(free_port())}
    for each in ("s", "v", "t"):
        (place / each).mkdir(mode=0o755)
    moved = dict(zip(CONTEXT, (f"{place}/s", f"{place}/v", f"{place}/t"), strict=True)) | ports

    def here(text: str) -> str:
        """The same, with folders and ports that are free on this machine."""
        return re.sub(rf"(?<!\w)({'|'.join(moved)})\b", lambda found: moved[found[1]], text)

    catalog = write_served(place / "s")
    for name in (".toml", ".users"):
        catalog.with_suffix(name).rename(place / "s" / f"catalog{name}")
    write_certificate(place / "s")
    (place / "s" / "t.parquet").chmod(0o600)
    settings = dict(each.split("=", 1) for each in here(only("ENV")).split())
    settings |= {"PATH": os.environ["PATH"], "TMPDIR": f"{place}/t", "HOME": "/nonexistent"}
    settings |= {"PYTHONPATH": f"{packages}:{ROOT}", "PYTHONSAFEPATH": "1"}
    writable = [f"{place}/{each}" for each in "svt"] + ["/dev", "/proc"]
    words = [here(each) for each in json.loads(only("CMD"))]
    command = [sys.executable, "-m", "tests.support.confined", *writable, "--", sys.executable]
    begun = [*command, "-m", *json.loads(only("ENTRYPOINT")), *words]
    with subprocess.Popen(begun, env=settings, cwd=place, stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr is not None
            said = [b"begun"]
            while said[-1] and b"serving catalog" not in said[-1]:
                said.append(server.stderr.readline())
            assert said[-1], b"".join(said)
            dsn = f"host=127.0.0.1 port={ports['5432']} user=ana password='{PASSWORD}'"
            more = f"{dsn} dbname=catalog sslmode=require options='-c epsilon=1'"
            with psycopg.connect(more, autocommit=True) as ana:
                assert ana.execute("SELECT COUNT(*) FROM t").fetchone()
                assert ana.execute("SELECT relname FROM pg_class WHERE relname = 't'").fetchone()
            check = json.loads(only("HEALTHCHECK").partition("CMD")[2])
            ready = [here(each).replace("/live", "/ready") for each in check[1:]]
            subprocess.run([sys.executable, *ready], check=True, timeout=60)
            with urllib.request.urlopen(f"http://127.0.0.1:{ports['9464']}/metrics") as found:
                assert b'dpsql_charges_total{database="catalog"} 1' in found.read()
            server.send_signal(signal.SIGTERM)
            assert server.wait(90) == 0
        finally:
            server.kill()
    written = {path.name for path in (place / "s").iterdir()} | set(os.listdir(place / "v"))
    assert "catalog.ledger" in written
    assert os.listdir(place / "v")
    assert {*packages.rglob("*")} == before
