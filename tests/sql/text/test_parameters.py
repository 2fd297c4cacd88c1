"""Parameters in the styles of PEP 249."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from dpsql.errors import Error, InterfaceError, ProgrammingError
from dpsql.settings.table import SETTINGS
from dpsql.sql.text.parameters import bind_parameters

TEXTS = "'a ? :x %s' || \"b ? $x %s\" -- ? :x %s\n/* ? */"


@pytest.mark.parametrize(
    ("style", "text", "given", "bound"),
    [
        ("qmark", "a = ? AND b = ?", [1, "x"], "a = 1 AND b = 'x'"),
        (
            "qmark",
            "a = $x AND b = :y AND c = $x",
            {"x": 1, "y": None},
            "a = 1 AND b = NULL AND c = 1",
        ),
        ("qmark", "a::TEXT = :x", {"x": 1}, "a::TEXT = 1"),
        ("qmark", "a = b::x", (), "a = b::x"),
        ("numeric", "a = :2 AND b = :1 AND c = :2", [1, 2], "a = 2 AND b = 1 AND c = 2"),
        ("named", "a = :low::INT", {"low": -1}, "a = (-1)::INT"),
        ("qmark", "QUANTILE_CONT(a, ?)", [0.9], "QUANTILE_CONT(a, 0.9)"),
        ("qmark", "a > ?::INT AND a < ?", [-0.0, Decimal("1.50")], "a > (-0.0)::INT AND a < 1.50"),
        ("format", "a = %s AND b %% 2 = %s", [1, 0], "a = 1 AND b % 2 = 0"),
        ("pyformat", "a = %(a b)s AND b %% 2 = 0", {"a b": 1}, "a = 1 AND b % 2 = 0"),
        ("pyformat", "a = %s", [1], "a = 1"),
        ("pyformat", "b %% 2, '%%'", None, "b %% 2, '%%'"),
        ("pyformat", "b % 2 = %(x)s AND c = '50%%'", {"x": 1}, "b % 2 = 1 AND c = '50%'"),
    ],
)
def test_marks_become_literals(style: str, text: str, given: Any, bound: str) -> None:
    assert bind_parameters(text, given, style) == bound


@pytest.mark.parametrize("style", SETTINGS["paramstyle"].kind.known)
def test_quotes_and_comments_hold_no_marks(style: str) -> None:
    assert bind_parameters(TEXTS, (), style) == TEXTS
    with pytest.raises(Error):
        bind_parameters(TEXTS, {"x": 1} if style == "named" else [1], style)


@pytest.mark.parametrize(
    ("style", "text", "given", "said"),
    [
        ("qmark", "a = ?", {"x": 1}, "no mark for the parameter 'x'"),
        ("qmark", "a = :x", [1], "1 parameter too many"),
        ("qmark", "a = ? AND b = ?", [1], "more [?] marks than parameters"),
        ("numeric", "a = :2", [1], "there is no parameter 2"),
        ("numeric", "a = :0", [1], "there is no parameter 0"),
        ("numeric", "a = :1", {"x": 1}, "are a sequence"),
        ("named", "a = :x", [1], "are a mapping"),
        ("named", "a = :nmae", {"name": 1}, "did you mean 'name'"),
        ("named", "a = :q", {"name": 1, "age": 2}, "given: name, age"),
        ("format", "a = %s", [1, 2], "too many"),
        ("format", "a = %(x)s", {"x": 2}, "are a sequence"),
        ("pyformat", "a = %(x)s", {"y": 2}, "no value for the parameter 'x'"),
        ("pyformat", "a = %s", {"y": 2}, "no mark for the parameter 'y'"),
        ("qmark", "a = ?", "x", "must be a sequence"),
        ("qmark", "a = ?", 3, "must be a sequence"),
    ],
)
def test_what_does_not_fit_is_refused(style: str, text: str, given: Any, said: str) -> None:
    with pytest.raises((ProgrammingError, InterfaceError), match=said):
        bind_parameters(text, given, style)
