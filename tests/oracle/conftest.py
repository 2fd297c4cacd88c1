"""Answers are compared with a database's own: how good plans are is asked elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.quick import quick_plans


@pytest.fixture(scope="module", autouse=True)
def _plans_are_quick() -> Iterator[None]:
    with quick_plans():
        yield
