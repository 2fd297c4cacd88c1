"""What is made of answers and their errors: how good plans are is asked elsewhere."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _plans_are_quick(quick_plans: None) -> None:
    """All modules here."""
