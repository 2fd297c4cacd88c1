"""Distinct units of unions of cells pass their audit, and faults planted in them do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense
from dpsql.errors import InternalError
from dpsql.privacy.doors import measure
from dpsql.privacy.vault.unit import unit_counts
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload import unions as unions_module
from dpsql.workload.cells import Unions
from tests.audit import unions


def test_numbers(tmp_path: Path) -> None:
    unions.numbers(tmp_path)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_losses(noise: str, tmp_path: Path) -> None:
    unions.losses(tmp_path, noise)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_sensitivity_that_forgets_that_unions_share_cells(
    noise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unions, "overlap", property(lambda self: 1))
    with pytest.raises(InternalError):
        unions.losses(tmp_path / "membrane", noise)  # the membrane counts for itself
    monkeypatch.setattr(measure, "_overlap", lambda resolution: 1)
    with pytest.raises(AssertionError):
        unions.losses(tmp_path / "plan", noise)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_values_of_a_unit_taken_for_one_of_its_rows(
    noise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.plan.plan.unit_reach", lambda found, rows: 1)
    with pytest.raises(InternalError):
        unions.losses(tmp_path / "membrane", noise)
    monkeypatch.setattr(measure, "_reach", lambda part, block: 1)
    with pytest.raises(AssertionError, match="DISTINCT"):
        unions.losses(tmp_path / "plan", noise)


def test_values_counted_by_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableVault, "_mark", lambda self, asked: self._tally(asked, True))
    with pytest.raises(AssertionError, match="AS values"):
        unions.numbers(tmp_path)


def test_groups_added_up_from_their_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        unions_module, "_unions", lambda found, groups: (found, Dense(groups.astype(np.int64)))
    )
    with pytest.raises(AssertionError):
        unions.numbers(tmp_path)


def test_units_whose_rows_are_not_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_counts, "in_groups", lambda units: np.arange(len(units)))
    with pytest.raises(AssertionError):
        unions.numbers(tmp_path)


def test_equal_groups_of_different_conditions_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.plan.target._content", lambda term: tuple(term.factors))
    with pytest.raises(AssertionError):
        unions.numbers(tmp_path)
