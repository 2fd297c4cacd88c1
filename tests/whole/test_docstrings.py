"""First lines of docstrings name what they describe, in the words of the field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "dpsql"
PARAPHRASES = {
    *("What", "Whether", "How", "It", "That", "All"),
    *("Where", "Which", "Who", "Why", "Those", "These", "Such"),
}
"""First words that put a paraphrase in the place of a noun, a verb or "True if"."""

SHARE = 0.01
"""The share of docstrings that may begin so, as in the packages that people call plain."""

ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the lines and texts of docstrings: of modules, classes, functions and constants."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for i, each in enumerate(node.body):
            described = i == 0 or isinstance(node.body[i - 1], ast.Assign | ast.AnnAssign)
            match each:
                case ast.Expr(ast.Constant(str(text))) if described:
                    yield each.lineno, text


def first_word(text: str) -> str:
    return next(iter(text.split()), "").strip(",.:;'")


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_few_docstrings_begin_with_a_paraphrase(room: str) -> None:
    found, count = [], 0
    for path in sorted((PACKAGE / room).rglob("*.py") if room else PACKAGE.glob("*.py")):
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            count += 1
            if first_word(text) in PARAPHRASES:
                found.append(f"{path.relative_to(PACKAGE)}:{line}: {text.splitlines()[0]}")
    assert count > 0
    assert len(found) <= SHARE * count, "\n".join(
        ["begin with a noun, or True if, or a verb:", *found]
    )


def named(text: str) -> set[str]:
    """Names in the docstring of a package: in backticks, or before a colon at the start."""
    quoted = re.findall(r"``(\w+)``", text)
    return {*quoted, *(n for n in re.findall(r"^([A-Z]\w+):", text, re.M) if n not in PLAIN)}


PLAIN = {"Rules", "Strategies"}
"""Words before a colon that are none but words."""


def test_packages_name_what_they_hold() -> None:
    for path in PACKAGE.rglob("*/__init__.py"):
        modules = [each for each in path.parent.rglob("*.py") if each != path]
        held = {each.stem for each in modules} | {each.parent.name for each in modules}
        code = "\n".join(each.read_text("utf-8") for each in modules)
        held |= set(re.findall(r"^ *(?:class |def )?(\w+)(?: =|[:(\[])", code, re.M))
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert named(text) - held - {"reconstruct"} == set(), path.parent.name


def test_paraphrases_are_found_wherever_docstrings_stand() -> None:
    planted = ast.parse(
        '"""What there is."""\n'
        "class A:\n"
        '    """How it is."""\n'
        "    b = 1\n"
        '    """All, of it."""\n'
        "    async def c(self):\n"
        '        """Whether so."""\n'
        '        "That is none."\n'
        "def d():\n"
        '    """Return it."""\n'
    )
    found = {line: first_word(text) for line, text in docstrings(planted)}
    assert found == {1: "What", 3: "How", 5: "All", 7: "Whether", 10: "Return"}
    assert {word for word in found.values() if word not in PARAPHRASES} == {"Return"}
