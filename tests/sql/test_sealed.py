"""An evaluation ends at its limit, and the next one is none the worse for it."""

from __future__ import annotations

import pytest

from dpsql import sealed
from dpsql.errors import ProgrammingError
from dpsql.sealed import Sealed

LONG = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"


def test_what_takes_too_long_is_interrupted_and_nothing_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sealed, "_clock", sealed._Clock())
    first, second = Sealed(), Sealed()
    monkeypatch.setattr(sealed, "TIME_LIMIT", 0.1)
    for _ in range(3):
        with pytest.raises(ProgrammingError, match="too long"):
            first.run(LONG)
        assert first.run("SELECT 1") == second.run("SELECT 1") == [(1,)]
    first.close()
    second.close()
    watching = sealed._clock._thread
    if watching is not None:
        watching.join(60)
    assert sealed._clock._thread is None
    assert not sealed._clock._running
