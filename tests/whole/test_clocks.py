"""Nothing that is published was ended by a clock: who reads one is listed, and decides nothing."""

from __future__ import annotations

import ast
import itertools
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpsql
from dpsql.learn.mwem import mwem
from dpsql.learn.rap import run_rap
from dpsql.learn.whole_marginals import Graphical, Mixture, run_marginals
from dpsql.pgm.linear import whole_marginal
from dpsql.pgm.measurements import Model
from tests.learn.fake import FakeHandle

CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}

READERS = {
    "dbapi/repetitions.py": "tells files that were changed just now: those are looked at again",
    "engine/progress.py": "tells of planning once a second",
    "forks.py": "waits for other threads before a fork, and refuses after it",
    "page/browser_sessions.py": "ends visits to the page",
    "files.py": "ends waits for a database that another process holds, with an error",
    "sealed.py": "ends statements at their timeout, with an error",
    "search/strategy_cache.py": "writes plans to disk that took long; they are the same without",
    "server/handshake.py": "ends connections that do not sign in",
    "server/supervisor.py": "when a server was started, and when it last told that it is alive",
    "server/signed_in.py": "tells how long sessions have been open and idle",
    "server/server.py": "waits for sessions at the end",
    "server/answer_ticks.py": "tells the age of sessions, and slows down after wrong passwords",
    "server/twin_connection.py": "ends questions about the catalog that take too long",
    "server/twin_server.py": "tells when the twin was started, and ends waits for it",
    "ui/session.py": "tells how long a statement took",
    "ui/narration.py": "tells how long a run has gone on",
}
"""Modules that read a clock of the machine, and what for: none of it is an answer."""


def test_only_listed_modules_read_a_clock() -> None:
    folder = Path(dpsql.__file__).parent
    found = set()
    for path in folder.rglob("*.py"):
        text = path.read_text()
        assert "from time import" not in text
        if "time." not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Attribute) or node.attr not in CLOCKS:
                continue
            if isinstance(node.value, ast.Name) and node.value.id == "time":
                found.add(path.relative_to(folder).as_posix())
    assert found == set(READERS)


DOMAIN = {"a": 4, "b": 5, "c": 3}
CANDIDATES = [whole_marginal(DOMAIN, pair) for pair in itertools.combinations(DOMAIN, 2)]


def _handle() -> FakeHandle:
    rng = np.random.default_rng(5)
    counts = rng.multinomial(2000, rng.dirichlet(np.full(60, 0.4)))
    return FakeHandle.of_histogram(DOMAIN, counts, Fraction(1, 2), noise="gaussian", rng=rng)


def _marginals(backend: Graphical | Mixture) -> Model:
    pairs = list(itertools.combinations(DOMAIN, 2))
    return run_marginals(_handle(), pairs, backend).model


def _rng() -> np.random.Generator:
    return np.random.default_rng(6)


RUNS: dict[str, Callable[[], Model]] = {
    "graphical": lambda: _marginals(Graphical(DOMAIN)),
    "mixture": lambda: _marginals(Mixture(DOMAIN, _rng(), components=20, steps=20)),
    "mwem": lambda: mwem(_handle(), CANDIDATES).model,
    "rap": lambda: run_rap(_handle(), CANDIDATES, rng=_rng(), steps=50).model,
}


@pytest.mark.parametrize("name", RUNS)
def test_learned_models_are_the_same_whatever_the_clock_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour between any two looks at a clock is a machine that is as busy as can be."""
    expected = [RUNS[name]().answer(candidate) for candidate in CANDIDATES]
    hours = itertools.count(1e6, 3600.0)
    for clock in ("monotonic", "perf_counter", "process_time", "time"):
        monkeypatch.setattr(time, clock, lambda: next(hours))
    found = RUNS[name]()
    for candidate, answers in zip(CANDIDATES, expected, strict=True):
        assert (found.answer(candidate) == answers).all()
