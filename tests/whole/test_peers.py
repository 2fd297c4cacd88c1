"""The table against peers: what they are asked, and that one which is not to be had is left out."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import numpy as np
import pytest

from benchmarks import peer, peers


def test_what_is_asked_of_peers_is_the_table_of_adults(tmp_path: Path) -> None:
    exact = peers.write(tmp_path)
    asked = peer.read(tmp_path)
    assert len(asked.marginals) == len(exact) == 286
    assert len(asked.sizes) == 13
    assert {int(each.sum()) for each in exact} == {48_842}
    assert [each.shape for each in exact] == [asked.shape(keys) for keys in asked.marginals]


def test_groups_that_a_peer_does_not_answer_have_no_error() -> None:
    asked = peer.Asked({"a": 2, "b": 2}, [])
    found = asked.table(["a", "b"], [(0, 1, 5), ("1", "1", 2.5)])
    np.testing.assert_array_equal(found, [[np.nan, 5], [np.nan, 2.5]])


def test_a_peer_that_cannot_be_installed_is_left_out_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no index can be reached")

    monkeypatch.setattr(peers, "BUILD", tmp_path)
    monkeypatch.setattr(venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(subprocess, "run", refused)
    assert [*peers.installed()] == []
    shown = capsys.readouterr().out
    assert shown.count("left out") == len(peers.PEERS)
    assert "no index can be reached" in shown
