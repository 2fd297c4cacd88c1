"""Outputs appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from unittest import mock

import pytest

from dpsql.errors import UsageError
from dpsql.ui.streams import OutputDirectory, OutputFile


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_committed_folder_appears_with_all_its_files(tmp_path: Path) -> None:
    with OutputDirectory(tmp_path / "out", force=False) as out:
        out.write("001_a.csv", b"x\n")
        assert not (tmp_path / "out").exists()
        out.commit()
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "001_a.csv").read_bytes() == b"x\n"


def test_an_abandoned_folder_leaves_nothing(tmp_path: Path) -> None:
    with OutputDirectory(tmp_path / "out", force=False) as out:
        out.write("001_a.csv", b"x\n")
    assert names(tmp_path) == []


def test_an_existing_folder_needs_force(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it exists") as caught:
        OutputDirectory(tmp_path, force=False)
    assert caught.value.exit_code == 2
    assert "--force" in (caught.value.hint or "")


def test_force_replaces_an_earlier_run_and_keeps_everything_else(tmp_path: Path) -> None:
    listed = {"statements": [{"file": "001_old.csv"}, {"file": "../secret.csv"}]}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "summary.json").write_text(json.dumps(listed))
    for name in ("001_old.csv", "mine.txt", "../secret.csv"):
        (tmp_path / "out" / name).write_text("old")
    with OutputDirectory(tmp_path / "out", force=True) as out:
        out.write("001_new.csv", b"new")
        out.commit()
    assert names(tmp_path / "out") == ["001_new.csv", "mine.txt", "summary.json"]
    assert (tmp_path / "secret.csv").exists()


def test_an_abandoned_forced_run_keeps_the_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("old")
    with OutputDirectory(tmp_path, force=True) as out:
        out.write("a.csv", b"new")
    assert names(tmp_path) == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "old"


@pytest.mark.parametrize("place", ["no/such/folder", "/dev/null/out", "/proc/out", "a\0b"])
@pytest.mark.parametrize("kind", [OutputDirectory, OutputFile])
def test_an_impossible_place_is_refused_at_once(
    tmp_path: Path, place: str, kind: type[OutputDirectory] | type[OutputFile]
) -> None:
    with pytest.raises(UsageError, match="cannot write") as caught:
        kind(tmp_path / place, force=True)
    assert caught.value.code == "E_OUTPUT"
    assert names(tmp_path) == []


def test_a_folder_and_a_file_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a folder"):
        OutputDirectory(tmp_path / "file", force=True)
    with pytest.raises(UsageError, match="is a folder"):
        OutputFile(tmp_path, force=True)


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_bytes(b"old")
    with OutputFile(target, force=True) as out:
        assert target.read_bytes() == b"old"
        out.commit(b"new")
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["report.html"]
    assert os.stat(target).st_mode & 0o077 == 0o044 & ~_umask()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def test_an_abandoned_file_leaves_nothing(tmp_path: Path) -> None:
    with OutputFile(tmp_path / "report.html", force=False):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", [OutputFile, OutputDirectory])
def test_where_the_disk_is_full_it_is_said_that_answers_are_stored(
    tmp_path: Path, kind: type[OutputFile] | type[OutputDirectory]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with kind(tmp_path / "out", force=False) as out:

        def write() -> None:
            if isinstance(out, OutputFile):
                out.commit(b"x")
            else:
                out.write("001_a.csv", b"x")

        with (
            mock.patch.object(Path, "write_bytes", side_effect=full),
            pytest.raises(UsageError, match="no space left") as caught,
        ):
            write()
    assert caught.value.hint == "what was charged is stored: asked again it is free"
    assert names(tmp_path) == []
