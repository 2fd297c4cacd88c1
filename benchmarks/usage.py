"""What ``--help`` prints of a benchmark: what it is for, in place of running it.

python -m benchmarks.usage
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


def purpose(name: str) -> str:
    """The docstring of a module of this folder."""
    text = (HERE / f"{name}.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(text)) or ""


def tell(command: Sequence[str]) -> int:
    """Print what ``python -m benchmarks`` or ``python -m benchmarks.NAME`` would run."""
    asked = next(word for word in command if word.split(".")[0] == "benchmarks")
    name = asked.partition(".")[2]
    print(purpose(name or "__main__"))
    for path in () if name else sorted(HERE.glob("[a-z]*.py")):
        if "__main__" in path.read_text(encoding="utf-8"):
            print(f"  python -m benchmarks.{path.stem:12} {purpose(path.stem).splitlines()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(tell(["benchmarks"]))
