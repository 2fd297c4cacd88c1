"""Remembered strategies: equal to planned ones, and never trusted blindly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpsql.plan import Workload
from dpsql.search import strategy_cache
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise

WORKLOAD = Workload({"a b/c": 6, "d": 3}, [{"a b/c": "prefix", "d": "identity"}, {"d": "identity"}])


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPSQL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(strategy_cache, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(strategy_cache, "_memory", type(strategy_cache._memory)())
    return tmp_path / "cache"


def plan(noise: Noise = "laplace") -> Strategy:
    return strategy_cache.cached_choice(WORKLOAD, noise, effort=0.1).strategy


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_round_trip(noise: Noise, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = plan(noise)
    (path,) = directory.iterdir()
    strategy_cache._memory.clear()
    monkeypatch.delattr(strategy_cache, "choose")
    again = plan(noise)
    assert again.fingerprint() == first.fingerprint()
    assert again.method == first.method
    assert again.blocks == first.blocks
    assert plan(noise) is again
    assert path.suffix == ".npz"


def test_damage_is_ignored(directory: Path) -> None:
    first = plan()
    (path,) = directory.iterdir()
    good = path.read_bytes()
    for bad in (b"", b"PK\x03\x04 nonsense", good[: len(good) // 2], b"\x80\x04N."):
        path.write_bytes(bad)
        strategy_cache._memory.clear()
        assert plan().fingerprint() == first.fingerprint()


def test_changed_content_is_ignored(directory: Path) -> None:
    plan()
    (path,) = directory.iterdir()
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored.files}
    facts = json.loads(arrays["facts"].tobytes())
    facts["blocks"][0][2] = "1/3"
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    np.savez(path, **arrays)
    assert strategy_cache.read(path, WORKLOAD, "laplace") is None
    other = Workload({"a b/c": 7, "d": 3}, [{"d": "identity"}])
    assert strategy_cache.read(path, other, "laplace") is None


def test_unwritable_or_switched_off(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    directory.parent.mkdir(exist_ok=True)
    directory.write_text("a file where the directory should be")
    assert plan().blocks
    monkeypatch.setenv("DPSQL_CACHE", "off")
    assert strategy_cache.cache_directory() is None
    monkeypatch.delenv("DPSQL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert strategy_cache.cache_directory() == Path("/somewhere/dpsql/strategies")


def test_keys_differ_by_every_argument() -> None:
    keys = {
        strategy_cache.cache_key(WORKLOAD, noise, mechanism, effort)
        for noise in ("laplace", "gaussian")
        for mechanism in ("auto", "kron")
        for effort in (1.0, 2.0)
    }
    assert len(keys) == 8
