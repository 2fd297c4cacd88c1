"""What a power cut leaves of a charge: states of the files that a disk may have, opened again.

A charge runs under ``strace``, which says what is written and waited for. A cut comes after any of
these steps. Of each file the disk then has what was waited for, and of what was written since any
sectors. The ledger has to open, with the charge or without it; with it where the release may have
been told; and has to go on.
Run: ``python -m benchmarks.power_cuts [states]`` (Linux, with strace).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dpsql

DEMO = Path(__file__).parent.parent / "demo_data"
SQL = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"
SECTOR = 512
CALLS = "openat,close,lseek,write,pwrite64,fsync,fdatasync,ftruncate,unlink,rename,link"
BEGIN, END = b"a charge begins", b"a charge ends"
CHARGE = f"""
import os, sys, dpsql
connection = dpsql.connect(sys.argv[1], epsilon=1)
connection.execute("SET fresh = on")
os.write(2, {BEGIN!r})
connection.execute({SQL!r})
os.write(2, {END!r})
os._exit(0)
"""


@dataclass(frozen=True)
class Step:
    """Bytes that were written at a place of a file; none where the file was waited for."""

    path: Path
    at: int = 0
    data: bytes = b""


def main(arguments: Sequence[str]) -> int:
    """Print what was found in how many states; return 1 where one is wrong."""
    count = int(arguments[0]) if arguments else 1000
    with tempfile.TemporaryDirectory() as name:
        folder, before = Path(name) / "data", Path(name) / "before"
        folder.mkdir()
        for kind in ("STATE", "CACHE", "DATA"):
            os.environ[f"XDG_{kind}_HOME"] = f"{name}/{kind.lower()}"
        for end in ("toml", "parquet"):
            shutil.copy(DEMO / f"adult.{end}", folder)
        catalog = folder / "adult.toml"
        catalog.write_text(catalog.read_text().replace("epsilon = 100.0", "epsilon = 10000.0"))
        with dpsql.connect(catalog, epsilon=1) as connection:
            connection.execute(SQL)
        shutil.copytree(folder, before)
        log = Path(name) / "log"
        strace = ["strace", "-f", "-xx", "-s", "1000000", "-e", f"trace={CALLS}", "-o", str(log)]
        subprocess.run(
            [*strace, sys.executable, "-c", CHARGE, str(catalog)],
            check=True,
            stderr=subprocess.PIPE,
        )
        steps = read_steps(log, folder)
        waits = [i for i, step in enumerate(steps) if not step.data]
        anchored = max(i for i in waits if steps[i].path.suffix == ".anchor")
        print(
            f"{len(steps)} steps, {len(waits)} of them waits; the charge is anchored at {anchored}"
        )
        found: Counter[str] = Counter()
        for seed in range(count):
            generator = random.Random(seed)
            cut = generator.randint(0, len(steps))
            shutil.rmtree(folder)
            shutil.copytree(before, folder)
            for path, content in left(steps[:cut], generator).items():
                path.write_bytes(content)
            found[look(catalog, cut > anchored)] += 1
    for what, times in found.most_common():
        print(f"{times:8}  {what}")
    return int(any(what.startswith("WRONG") for what in found))


def look(catalog: Path, told: bool) -> str:
    """Open the ledger, say what it has, and charge once more."""
    try:
        with dpsql.connect(catalog, epsilon=1) as connection:
            entries = connection.budget.entries
            connection.execute("SET fresh = on")
            connection.execute(SQL)
            if connection.budget.entries != entries + 1 or entries not in (1, 2):
                return f"WRONG: {entries} entries, then {connection.budget.entries}"
    except dpsql.Error as error:
        return f"WRONG: {error}"
    if told and entries == 1:
        return "WRONG: the charge is gone, and what it paid for may have been told"
    return f"cut {'after' if told else 'before'} it was anchored: {entries - 1} of 1 charge"


def left(steps: Sequence[Step], generator: random.Random) -> dict[Path, bytes]:
    """The content of the files that were written to, as a disk may have it."""
    waited = {step.path: i for i, step in enumerate(steps) if not step.data}
    chance = generator.random()
    files: dict[Path, bytearray] = {}
    for i, step in enumerate(steps):
        if step.data and step.path not in files:
            files[step.path] = bytearray(step.path.read_bytes() if step.path.exists() else b"")
        for start in range(0, len(step.data), SECTOR):
            if i < waited.get(step.path, -1) or generator.random() < chance:
                part = step.data[start : start + SECTOR]
                file, at = files[step.path], step.at + start
                file.extend(bytes(max(0, at + len(part) - len(file))))
                file[at : at + len(part)] = part
    return {path: bytes(content) for path, content in files.items()}


def read_steps(log: Path, folder: Path) -> list[Step]:
    """What was written to files of a folder, and waited for, between the two marks of a log."""
    names: dict[int, Path] = {}
    places: dict[int, int] = {}
    steps: list[Step] = []
    begun = False
    for line in log.read_text().splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)\) += (\d+)", line)
        if call is None:
            continue
        name, arguments, returned = call[1], call[2], int(call[3])
        text = re.search(r'"((?:\\x..)*)"', arguments)
        data = b"" if text is None else bytes.fromhex(text[1].replace("\\x", ""))
        number = re.match(r"\d+", arguments)
        fd = -1 if number is None else int(number[0])
        if name == "write" and data in (BEGIN, END):
            begun = data == BEGIN
        elif name == "openat":
            names[returned], places[returned] = Path(os.fsdecode(data)), 0
        elif name == "close":
            names.pop(fd, None)
        elif name == "lseek":
            places[fd] = returned
        elif begun and name in ("write", "pwrite64"):
            at = int(arguments.rpartition(", ")[2]) if name == "pwrite64" else places.get(fd, 0)
            places[fd] = at + len(data) if name == "write" else places.get(fd, 0)
            steps.append(Step(names.get(fd, Path()), at, data))
        elif begun and name in ("fsync", "fdatasync"):
            steps.append(Step(names.get(fd, Path())))
        elif begun:
            raise SystemExit(f"{name} changes names, of which nothing is known here: {line}")
    return [step for step in steps if folder in step.path.parents]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
