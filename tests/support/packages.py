"""Packages that are installed for a test: as pip does, by a dist-info folder on the path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def folder_of_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new folder on the path; modules imported from it are forgotten afterwards."""
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", "") or "").startswith(str(folder)):
            del sys.modules[name]


def install(site: Path, package: str, module: str, groups: dict[str, dict[str, str]]) -> None:
    """Put a module and its metadata where pip would."""
    (site / f"{package}.py").write_text(module, encoding="utf-8")
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
