"""Write the reference pages that follow from the code: options, commands, errors, the Python API.

They are written when the site is made (docs/conf.py) and are not kept.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import dpsql.ui.commands  # noqa: F401  registers them
from dpsql.ui.command import COMMANDS

ROOT = Path(__file__).parents[1]


def options() -> str:
    """All settings and where they may be given."""
    lines: list[str] = runpy.run_path(str(ROOT / "docs" / "make.py"))["settings"]()
    return "\n".join(["# Settings", *lines[1:]])


def commands() -> str:
    """The commands of the prompt."""
    lines = [
        "# Commands of the prompt",
        "",
        "A line that begins with a dot. Names may be shortened; `.help NAME` tells of one.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    for each in COMMANDS.values():
        form = f".{each.name} {each.argument}".strip().replace("|", "\\|")
        lines.append(f"| `{form}` | {each.help.split(chr(10))[0]} |")
    return "\n".join([*lines, ""])


def errors() -> str:
    """Every error code with what it means, and a statement that it refuses where there is one."""
    codes = json.loads((ROOT / "tests" / "bad_inputs.json").read_text("utf-8"))["codes"]
    examples = dict(_refused())
    lines = [
        "# Errors by code",
        "",
        "Every error has a code, which does not change, a message, and a hint at what would work"
        " instead. Nothing is charged for what is refused. In Python it is an exception of PEP 249"
        " with `code`, `message` and `hint`.",
        "",
    ]
    for code, meaning in sorted(codes.items()):
        lines += [f"## {code}", "", f"{meaning[:1].upper()}{meaning[1:]}.", ""]
        if code in examples:
            lines += ["```sql", examples[code], "```", ""]
    return "\n".join(lines)


def _refused() -> Iterator[tuple[str, str]]:
    """The first, shortest statement for each code among those of grammar/rejected.sql."""
    text = (ROOT / "grammar" / "rejected.sql").read_text("utf-8")
    found = re.findall(
        r"^((?:[^\n-][^\n]*\n)+)-- (E_\w+)[^\n]*((?:\n-- [^\n]*)*)", text, re.MULTILINE
    )
    for sql, code, rest in sorted(found, key=lambda each: -len(each[0])):
        yield code, f"{sql.strip()}\n-- {code}{rest}"


def python() -> str:
    """What `import dpsql` offers, from its docstrings."""
    return """# Python

What `dpsql` and `dpsql.dbapi` offer (PEP 249), from their docstrings.

```{eval-rst}
.. autofunction:: dpsql.dbapi.connection.connect
.. autofunction:: dpsql.dbapi.drafting.draft_catalog
.. autoclass:: dpsql.dbapi.connection.Connection
   :members:
.. autoclass:: dpsql.dbapi.connection.Cursor
   :members:
.. autoclass:: dpsql.answer.result.Result
   :members:
.. autoclass:: dpsql.engine.explanation.Explanation
   :members:

Errors
------

.. automodule:: dpsql.errors
   :members:
```
"""


def decisions() -> str:
    """The index of the decision records, with all of them in the contents."""
    folder = ROOT / "docs" / "decisions"
    names = sorted(path.stem for path in folder.glob("[0-9]*.md"))
    text = (folder / "README.md").read_text("utf-8")
    return "\n".join([text, "```{toctree}", ":hidden:", ":maxdepth: 1", "", *names, "```", ""])


PAGES: dict[str, Callable[[], str]] = {
    "reference/options.md": options,
    "reference/commands.md": commands,
    "reference/errors.md": errors,
    "reference/python.md": python,
    "decisions/index.md": decisions,
}


def write_all(folder: Path) -> None:
    """Write all pages below a folder, those alone that have changed."""
    for name, page in PAGES.items():
        path, text = folder / name, page()
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")
