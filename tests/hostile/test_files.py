"""Every file that dpsql writes is new, is no link's target, and is its owner's alone."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from subprocess import PIPE
from unittest import mock

import pytest

import dpsql
from dpsql import files
from dpsql.answer import model_answers, store
from dpsql.answer.store import Store
from dpsql.files import ScratchFolder, replace_file
from dpsql.privacy.budget import curator_acts
from dpsql.search import strategy_cache
from dpsql.ui import repl

ROOT = Path(__file__).parents[2] / "dpsql"
STATEMENTS = (
    "SELECT sex, COUNT(*) FROM adult GROUP BY sex",
    "SELECT COUNT(*) FROM adult WHERE age > 40",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(clip = 'svt') SUM(capital_gain) FROM adult",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = 'mwem') sex, race, COUNT(*) FROM adult "
    "GROUP BY CUBE (sex, race)",
    "CREATE SYNTHETIC TABLE s FROM adult FOR (SELECT sex, COUNT(*) FROM adult GROUP BY sex) "
    "OPTIONS(epsilon = 1)",
)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def session(catalog: Path) -> None:
    """Make a file of every kind."""
    with dpsql.connect(catalog, epsilon=1) as connection:
        for sql in STATEMENTS:
            connection.execute(sql)
    model_answers.write_rows({"a": [1, 2]}, catalog.parent / "rows.csv")
    repl.open_history()


def wider(folder: Path, known: set[Path]) -> dict[str, str]:
    """The files and folders, but for known ones, on which others have rights."""
    modes = {p: p.lstat().st_mode for p in folder.rglob("*") if p not in known}
    return {str(p.relative_to(folder)): oct(m) for p, m in modes.items() if m & 0o077}


def test_a_session_leaves_nothing_that_others_can_read(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (demo / "adult.toml").read_text().replace('anchor = "anchors"', "")
    (demo / "adult.toml").write_text(text)
    known = set(tmp_path.rglob("*"))
    monkeypatch.setattr(strategy_cache, "WORTH_SECONDS", 0)
    with umask(0):
        session(demo / "adult.toml")
        made = [path.name for path in tmp_path.rglob("*") if path not in known]
        assert wider(tmp_path, known) == {}
        for end in (".ledger", ".lock", ".releases", ".synthetic", ".anchor", ".source", ".inode",
                    ".npz", "rows.csv", "history"):  # fmt: skip
            assert any(name.endswith(end) for name in made), end
        curator_acts.raise_budget(demo / "adult.toml", Fraction(200))
        for path in demo.iterdir():
            if path not in known and path.is_file():
                path.chmod(0o666)
        with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
            for sql in STATEMENTS[:-1]:
                connection.execute(sql)
    assert set(wider(demo, known)) <= {"rows.csv"}


def test_a_store_with_wide_rights_is_found(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = set(tmp_path.rglob("*"))
    monkeypatch.setattr(store, "keep_private", lambda path: None)
    with umask(0), dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        connection.execute(STATEMENTS[0])
    wide = oct(stat.S_IFREG | 0o644)
    names = ("demo/adult.releases", "demo/adult.releases-journal")
    assert wider(tmp_path, known) == dict.fromkeys(names, wide)


def test_a_journal_has_the_rights_of_its_file(tmp_path: Path) -> None:
    kept = Store(tmp_path / "x.toml").releases
    path = kept.file.path
    with umask(0), kept.file.opened("BEGIN IMMEDIATE") as db:
        db.execute("INSERT INTO implied VALUES ('a', 'b')")
        (journal,) = (p for p in tmp_path.iterdir() if p != path)
        assert journal.stat().st_mode & 0o777 == 0o600
    assert kept.find("a") is None


@pytest.mark.parametrize("left", ["link", "file"])
def test_nothing_is_written_through_a_link(tmp_path: Path, left: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    for name in ("rows.csv.part", ".rows.csv.part", "a.anchor.new"):
        if left == "link":
            (tmp_path / name).symlink_to(precious)
        else:
            os.link(precious, tmp_path / name)
    model_answers.write_rows({"a": [1]}, tmp_path / "rows.csv")
    replace_file(tmp_path / "a.anchor", b"new")
    (tmp_path / "o").symlink_to(precious)
    for force in (False, True):
        with pytest.raises(OSError, match="o"):
            files.open_output(tmp_path / "o", force)
    assert precious.read_text() == "keep me"
    assert (tmp_path / "a.anchor").read_bytes() == b"new"
    assert (tmp_path / "rows.csv").read_text() == "a\n1\n"


def test_a_name_that_is_taken_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"

    def write(name: str, meanwhile: Callable[[], object]) -> None:
        with files.new_file(tmp_path / name) as file:
            file.write(b"new")
            meanwhile()

    with pytest.raises(FileExistsError):
        write("rows.csv", lambda: path.write_text("theirs"))
    with pytest.raises(KeyboardInterrupt):
        write("x", mock.Mock(side_effect=KeyboardInterrupt))
    assert [each.name for each in tmp_path.iterdir()] == ["rows.csv"]
    assert path.read_text() == "theirs"


OPENERS = {
    "files.py": "the one place; lock files: never truncated, never through a link",
    "privacy/budget/curator_acts.py": "the catalog: opened as new, with the rights that it had",
    "search/strategy_cache.py": "from a descriptor that is new",
    "privacy/budget/ledger_file.py": "SQLite, over a file made before",
    "answer/store.py": "SQLite, over a file made before",
    "privacy/vault/formats/sqlite_files.py": "SQLite, opened to be read alone",
    "answer/change_counter.py": "SQLite's header, to read it",
    "answer/codec.py": "an archive in memory",
    "server/operator_socket.py": "the folder of a socket, for a short address",
    "ui/streams.py": "files with new names beside the wanted ones",
    "ui/cli.py": "the null device",
    "ui/editor.py": "from a descriptor that is new, in the folder for temporary files",
    "engine/planning_processes.py": "Linux's order of what ends first where memory is short",
    "privacy/vault/files/stores.py": "copies in a folder of the process, with new names",
}


WORDS = ("open", "write_", "touch", "mkstemp", "mkdtemp", "NamedTemporaryFile", "sqlite3")
"""One of them stands in every module that writes a file."""


def test_files_are_written_in_few_and_known_places() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(word in text for word in WORDS) else ():
            if isinstance(node, ast.Call) and _writes(node):
                found.add(str(path.relative_to(ROOT)))
    assert found == OPENERS.keys()


def _writes(call: ast.Call) -> bool:
    """Whether a call can make or open a file to write it."""
    function = call.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    owner = getattr(getattr(function, "value", None), "id", "")
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name in ("write_text", "write_bytes", "touch", "mkstemp", "mkdtemp", "NamedTemporaryFile"):
        return True
    if (owner, name) in (("os", "open"), ("sqlite3", "connect"), ("os", "fdopen")):
        return True
    return name == "open" and any(set(t) <= set("rwxab+t") and set(t) & set("wxa+") for t in texts)


def test_real_paths_are_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, linked = tmp_path / "a" / "b", tmp_path / "c"
    folder.mkdir(parents=True)
    linked.symlink_to(folder)
    (folder / "x").touch()
    (folder / "y").symlink_to(folder / "x")
    (folder / "loop").symlink_to(folder / "loop")
    monkeypatch.chdir(tmp_path / "a")
    names = ("x", "y", "loop", "none", ".", "..", "", "../b/x", "../../c/y")
    paths = [f"{start}/{name}" for start in (folder, linked, "b", "../c", ".") for name in names]
    paths += ["x", "b/x", "b", "", ".", "/", "//", str(linked), f"{linked}/"]
    assert files.real_paths(paths) == [os.path.realpath(path) for path in paths]


def test_many_files_are_replaced_and_their_folders_synced_once(tmp_path: Path) -> None:
    contents = {tmp_path / place / str(i): bytes([i]) for place in "ab" for i in range(9)}
    for place in "ab":
        (tmp_path / place).mkdir()
    with mock.patch.object(files, "sync_directory", wraps=files.sync_directory) as synced:
        files.replace_files(contents)
    assert sorted(call.args[0] for call in synced.call_args_list) == [
        tmp_path / "a",
        tmp_path / "b",
    ]
    found = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    assert found == contents


KILLED = """
import os, signal, sys
from dpsql.files import ScratchFolder
kept = ScratchFolder("scratch-", sys.argv[1])
(kept.path / "rows").write_text("private")
print(kept.path, flush=True)
sys.stdin.read(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_scratch_folders_of_processes_that_were_killed_are_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        with ScratchFolder("scratch-", str(tmp_path)) as mine:
            assert (other / "rows").exists()  # its process lives
            assert mine.stat().st_mode & 0o077 == 0
        assert not mine.exists()
        process.stdin.write("x")
    assert (other / "rows").exists()
    (tmp_path / "scratch-of-another.txt").touch()
    ScratchFolder("scratch-", str(tmp_path)).remove()
    assert [each.name for each in tmp_path.iterdir()] == ["scratch-of-another.txt"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_leaves_a_scratch_folder_to_its_parent(tmp_path: Path) -> None:
    folder = ScratchFolder("scratch-", str(tmp_path))
    child = os.fork()
    if not child:
        folder.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.path.is_dir()
    folder.remove()
    assert not list(tmp_path.iterdir())
