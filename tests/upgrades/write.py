"""Add what a version of dpsql writes to the corpus: python tests/upgrades/write.py COMMIT ...

The version of every commit is run in a folder of its own by this interpreter, asks the statements,
and its ledger and releases are kept beside as COMMIT.zip. What was kept is never written again:
a version that answers other statements gets other files, a corpus of its own.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
KEPT = ("answered.json", "clinic.ledger", "clinic.releases", "clinic.synthetic")


def write(commit: str) -> Path:
    """Run the version of a commit, and keep what it wrote.

    Raises: CalledProcessError where it fails; FileExistsError where it is kept by now.
    """
    archive = subprocess.run(["git", "archive", commit, "dpsql"], check=True, capture_output=True)
    with tempfile.TemporaryDirectory() as home:
        folder, code = Path(home) / "asked", Path(home) / "code"
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as file:
            file.extractall(code, filter="data")
        folder.mkdir()
        for each in (*HERE.glob("*.toml"), *HERE.glob("*.parquet")):
            shutil.copy(each, folder)
        own = {"PYTHONPATH": str(code), "XDG_STATE_HOME": home, "XDG_CACHE_HOME": home}
        command = [sys.executable, str(HERE / "ask.py"), str(folder)]
        subprocess.run(command, check=True, cwd=home, env=os.environ | own)
        kept = HERE / f"{commit}.zip"
        with zipfile.ZipFile(kept, "x", zipfile.ZIP_DEFLATED) as packed:
            for name in KEPT:
                packed.write(folder / name, name)
    return kept


if __name__ == "__main__":
    for commit in sys.argv[1:]:
        print(write(commit))
