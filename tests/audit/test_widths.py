"""Nothing but the numbers depends on the rows: what runs, types of arrays, stored bytes, time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit import widths


@pytest.mark.parametrize("name", list(widths.plans()))
def test_measurements(name: str) -> None:
    widths.measurements(name)


@pytest.mark.parametrize("name", ["short", "long"])
def test_measurements_with_opendp(name: str) -> None:
    pytest.importorskip("opendp")
    widths.measurements(name, "opendp")


def test_looks() -> None:
    widths.looks()


def test_statements(tmp_path: Path) -> None:
    widths.statements(tmp_path)


def test_clock() -> None:
    widths.clock()
