"""A place of its own for the ledger of every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.privacy.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a fresh place for a ledger."""
    return Place(tmp_path)
