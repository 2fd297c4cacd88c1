"""The vector of a table is the sum of those of its rows, whoever wrote it, whatever it holds.

ADDITIVITY_TABLES says how many random tables are checked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.privacy.additivity import check_some
from tests.support.effort import effort

pytestmark = pytest.mark.slow

TABLES = effort(80)
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_a_table_is_the_sum_of_its_rows(part: int, tmp_path: Path) -> None:
    check_some(tmp_path, range(part, TABLES, PARTS))
