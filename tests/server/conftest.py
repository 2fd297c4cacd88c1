"""One server for the tests of a module: a catalog of its own, without a twin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsql.server.server import Server
from tests.support.served import Client, served, write_served


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STATE", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(folder / name))
        with served(write_served(folder)) as server:
            yield server


@pytest.fixture
def client(site: Server) -> Iterator[Client]:
    with Client(site.port) as found:
        assert found.start()[-1][0] == b"Z"
        found.ask("SET epsilon = 0.01")
        yield found


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return write_served(tmp_path)
