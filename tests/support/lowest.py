"""The lowest versions that pyproject.toml allows of what a core installation and Arrow need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def lowest(*extras: str) -> list[str]:
    """Return the lower bounds of dependencies, and of those of some extras, as pins of pip."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    project = tomllib.loads(text)["project"]
    needed = [*project["dependencies"]]
    for extra in extras:
        needed += project["optional-dependencies"][extra]
    found = (re.match(r"([\w-]+)>=([\d.]+)", each) for each in needed)
    return [f"{each[1]}=={each[2]}" for each in found if each is not None]


if __name__ == "__main__":
    print(*lowest("arrow"))
