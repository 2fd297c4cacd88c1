"""The names of functions, for hints about names that are none."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import cache

from sqlglot import exp

from dpsql.sql.admitted import AGGREGATES, NAMED, SCALARS

_SPELLED = (
    *("stddev", "quantile_cont", "quantile_disc", "count_if", "bool_and", "bool_or", "string_agg"),
    *("date_trunc", "date_diff", "strftime", "regexp_matches", "starts_with"),
)
"""Functions that the parser knows by other names than people do."""
_UNDERLINED = ("reg", "cov", "var", "std")
"""How those begin that have an underscore for the parser and for people."""
_NOT_CALLED = {"and", "or", "case", "cast", "pad"}
"""What the parser has as functions and people do not write so."""
_OWN = ("dp_", "anon_")
"""How functions of dpsql's own begin."""
CUTOFF = 0.76
"""How near a name has to be: cuont and uper are, foo is not."""


def nearest_function(name: str) -> str | None:
    """The function that a name which is none comes near to, in lower case.

    >>> nearest_function("CONUT"), nearest_function("uper"), nearest_function("frobnicate")
    ('count', 'upper', None)
    """
    known = _functions()
    if name.lower() in known or name.lower().startswith(_OWN):
        return None
    return next(iter(difflib.get_close_matches(name.lower(), known, n=1, cutoff=CUTOFF)), None)


def is_function(name: str) -> bool:
    """Whether a function of this name works, with other arguments it may be."""
    return name.lower() in _functions()


@cache
def _functions() -> tuple[str, ...]:
    """The names of the functions that work, as DuckDB spells them."""
    kinds = [kind for kind in (*AGGREGATES, *SCALARS) if issubclass(kind, exp.Func)]
    return tuple(dict.fromkeys([*_names(kinds), *sorted(NAMED), *_SPELLED]))


def _names(kinds: Iterable[type[exp.Func]]) -> Iterator[str]:
    for kind in kinds:
        for name in kind.sql_names():
            plain = name.lower()
            if plain in _NOT_CALLED:
                continue
            if "_" not in plain or plain.startswith(_UNDERLINED):
                yield plain
