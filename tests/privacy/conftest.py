"""Let the tests of the membrane share the helpers beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from tests.privacy.place import Place  # noqa: E402


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a fresh place for a ledger."""
    return Place(tmp_path)
