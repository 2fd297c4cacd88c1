"""Outputs appear whole or not at all."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
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


class Killed(BaseException):
    """The end of a process, after which nothing is tidied up."""


def run_of(folder: Path, names: list[str], text: str, steps: int) -> bool:
    """Replace the results in a folder; end after so many changes of names. Say whether it did."""
    left = [steps]

    def counted(change: Callable[..., object]) -> Callable[..., object]:
        def one(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return change(*arguments, **options)

        return one

    out = OutputDirectory(folder, force=True)
    for name in [*names, "summary.md"]:
        out.write(name, text.encode())
    listed = {"statements": [{"file": name} for name in names], "of": text}
    out.write("summary.json", json.dumps(listed).encode())
    changes: dict[str, Any] = {
        name: counted(getattr(os, name)) for name in ("replace", "unlink", "rename")
    }
    try:
        with mock.patch.multiple(os, **changes):
            out.commit()
    except Killed:
        return True
    out.discard()
    return False


@pytest.mark.parametrize(
    "new",
    [
        ["001_a.csv", "002_b.csv"],
        ["001_a.csv", "002_c.csv", "003_d.csv"],
        ["001_z.csv"],
        ["001_a.json", "002_b.json"],
    ],
)
def test_a_forced_run_that_is_killed_leaves_the_old_results_or_the_new(
    tmp_path: Path, new: list[str]
) -> None:
    """After any of its steps all the old files are there or all the new ones, each of them whole;
    the next run leaves its own alone.
    """
    old = ["001_a.csv", "002_b.csv"]
    for steps in itertools.count():
        folder = tmp_path / str(steps)
        folder.mkdir()
        (folder / "mine.txt").write_text("mine")
        assert not run_of(folder, old, "old", 1000)
        was_killed = run_of(folder, new, "new", steps)
        found = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
        assert found["mine.txt"] == "mine"
        assert found.keys() >= {*old, "summary.md"} or all(found.get(name) == "new" for name in new)
        assert {found[name] for name in found if name[0] == "0"} <= {"old", "new"}
        summary = json.loads(found["summary.json"])
        if summary["of"] == "new":
            assert sorted(n for n in found if n[0] == "0") == new
        assert not run_of(folder, ["001_last.csv"], "last", 1000)
        kept = sorted(path.name for path in folder.iterdir() if path.is_file())
        assert kept == ["001_last.csv", "mine.txt", "summary.json", "summary.md"]
        if not was_killed:
            assert not list(folder.glob(".dpsql-partial-*"))
            assert steps >= len(new)
            return


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
