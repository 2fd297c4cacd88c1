"""Every option once: its name, its values, its default, a line of help, and who takes it.

SET and SHOW, the OPTIONS of statements, what the prompt offers, the keywords of ``connect`` and of
``execute``, and the command line follow from ``SETTINGS``, in its order. A new option is one entry
here and the code that uses its value. Nothing heavy is imported: ``dpsql --help`` reads this.
"""

from __future__ import annotations

import math
import re
from enum import Flag, auto
from fractions import Fraction
from typing import Any

from dpsql.amounts import parse_delta, parse_delta_text, parse_epsilon, parse_epsilon_text
from dpsql.errors import DataError, Error, ProgrammingError, Span, decimal_text, printable
from dpsql.records import dataclass, replace
from dpsql.settings.kinds import Given, Kind, switch
from dpsql.settings.machine import read_bytes, request_memory, show_bytes
from dpsql.settings.rounds import AUTO, MOST, WORDS


class OptionPlace(Flag):
    """The places where an option may be given."""

    SET = auto()
    SELECT = auto()
    CREATE = auto()
    FIND = auto()
    CONNECT = auto()
    EXECUTE = auto()


EVERYWHERE = (
    OptionPlace.SET
    | OptionPlace.SELECT
    | OptionPlace.CREATE
    | OptionPlace.FIND
    | OptionPlace.CONNECT
    | OptionPlace.EXECUTE
)
BOTH = OptionPlace.SET | OptionPlace.SELECT
"""Terms of a session that one statement may have otherwise; those of one workload agree."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """An option of ``dpsql``: what stands for its value, its help, and that of ``dpsql run``."""

    metavar: str
    help: str
    whole: str = ""
    short: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """One option.

    ``kept`` names the option in whose value this one is kept, ``alike`` the one that has its
    meaning elsewhere. Values of one that is ``early`` are checked where they stand in SQL.
    """

    name: str
    help: str
    takers: OptionPlace
    kind: Kind
    default: Any = None
    kept: str = ""
    alike: str = ""
    early: bool = False
    error: type[Error] = DataError
    command_line: CommandLine | None = None

    @property
    def key(self) -> str:
        """The name that its value is kept by."""
        return self.kept or self.name

    def read(
        self,
        text: str,
        given: Given | None = None,
        span: Span | None = None,
        error: type[Error] | None = None,
    ) -> Any:
        """Return the value of a text, beside the values of a session.

        Args:
            text: as it was typed after SET or an option.
            given: values of the session, for settings that are read in the light of others.
            span: place in the statement that a caret points to.
            error: class of the error, None for the setting's own.

        Raises: ``error``, else the one of the option (E_SETTING); DataError (E_EPSILON, E_DELTA).

        >>> SETTINGS["reconstruct"].read("PGM"), SETTINGS["weight"].read("2")
        ('pgm', 2.0)
        """
        value = self.kind.read(text, given or {})
        if value is None:
            what, works = f"{self.name} = {printable(text)}", self.kind.works.format(self.name)
            raise (error or self.error)("E_SETTING", what, hint=works, span=span)
        return value


def _words(*known: str, offered: tuple[str, ...] = ()) -> Kind:
    return Kind(
        lambda text, given: text.lower() if text.lower() in known else None,
        f"one of {', '.join(known)}",
        offered=lambda: _quoted(offered or known),
        known=known,
        is_word=True,
    )


def _quoted(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"'{word}'" for word in words)


def _read_noise(value: Any, given: Given) -> str:
    from dpsql.strategy.noise_law import read_noise  # imports numpy

    return read_noise(value)


def _noises() -> tuple[str, ...]:
    from dpsql.strategy.noise_law import AUTO, LAWS  # imports numpy

    return _quoted((*LAWS, AUTO))


MOST_EFFORT = 100
"""Times the usual search: planning takes about as many times longer."""


def _read_effort(text: str, given: Given) -> Fraction | None:
    digits = re.fullmatch(r"\d{1,4}(\.\d{1,4})?", text, re.ASCII)
    return Fraction(text) if digits and 0 < Fraction(text) <= MOST_EFFORT else None


def _read_positive(text: str, given: Given) -> float | None:
    number = r"\d{0,12}\.?\d{1,12}(e[+-]?\d{1,2})?"
    if not re.fullmatch(number, text, re.ASCII | re.IGNORECASE):
        return None
    return float(text) if 0 < float(text) < math.inf else None


def _read_part(text: str, given: Given) -> float | None:
    found = _read_positive(text.removesuffix("%").strip(), given)
    part = found if found is None else found / (100 if text.endswith("%") else 1)
    return None if part is None or part > 1 else part


def _read_whole(text: str, given: Given) -> int | None:
    return int(text) or None if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None


def _read_clip(text: str, given: Given) -> str | Fraction | None:
    if text.lower() in CLIPS:
        return text.lower()
    return (Fraction(text) or None) if re.fullmatch(r"\d{1,18}(\.\d{1,9})?", text, re.A) else None


def _reuse(is_fresh: bool, given: Given) -> str:
    if is_fresh:
        return "never"
    return "auto" if given["reuse"] == "never" else str(given["reuse"])


def _count(part: str, *words: str) -> Kind:
    """A number of rounds, or of queries in each: one part of ``Rounds``."""

    def read(text: str, given: Given) -> Any:
        value: int | str = text.lower()
        if re.fullmatch(r"[0-9]{1,9}", text) and 1 <= int(text) <= MOST:
            value = int(text)
        elif value not in words:
            return None
        return replace(given.get("rounds", AUTO), **{part: value})

    works = f"a whole number from 1 to {MOST:,}, or {' or '.join(words)}"
    return Kind(read, works, lambda rounds: str(getattr(rounds, part)), lambda: _quoted(words))


FAMILIES = (
    *("auto", "identity", "workload", "tree", "kron", "union", "marginals", "residual"),
    *("joint", "separate", "symmetric", "hdmm"),
)
"""Families of strategies of the matrix mechanism."""

PUBLISHED = ("opt_0", "opt_kron", "opt_plus", "opt_m", "coa")
"""Algorithms of papers that search for a strategy, each by itself: to compare with."""

LEARNED = ("mwem", "rap", "marginals", "adaptive")
"""Mechanisms that look several times and answer from a model."""

FIXED = {"fixed_marginals": "marginals"}
"""Families of strategies whose own name is taken by a mechanism."""

MECHANISMS = (*(n for n in FAMILIES if n not in LEARNED), *FIXED, *PUBLISHED, *LEARNED)

# Families to compare with, and those that auto weighs anyway, would only make the list longer.
_SELDOM = {"auto", "identity", "workload", "symmetric", "separate", *FIXED}

MODELS = ("auto", "mwem", "marginals", "mixture", "pgm", "rap")
"""Models by which a synthetic table may be learned."""

RECONSTRUCTIONS = ("gls", "nonnegative", "pgm", "mbi")
"""Ways to infer answers from what was measured; all are free of budget."""

CLIPS = (
    *("none", "svt", "svt-ratio", "recursive", "quantile", "approx-bounds"),
    *("sure", "eb", "r2t"),
)
"""Rules to choose a threshold; a number is one that is given."""

DIALECTS = ("duckdb", "postgres")
"""Databases whose SQL statements may be in."""

KEYS = ("listed", "private")
"""Sources of keys that nobody listed: none, or a release that is paid as well."""

SUM_MECHANISMS = ("tamm", "timm", "identity", "workload", "sqm")
"""Designs of a batch of clipped sums."""

DEMANDS = ("max_stddev", "within")
"""Settings that say how far off an answer may be."""

CLIPPING = ("clip", "sum_mechanism")
"""Settings under which a threshold is chosen for sums of values."""

_EPSILON = Kind(
    lambda text, given: parse_epsilon_text(text, given["limit"]),
    show=lambda epsilon: "not set" if epsilon is None else decimal_text(epsilon),
    take=lambda value, given: parse_epsilon(value, given["limit"]),
)
_DELTA = Kind(
    lambda text, given: parse_delta_text(text),
    show=lambda delta: f"{float(delta):g}",
    take=lambda value, given: parse_delta(value),
)
_NOISE = Kind(_read_noise, offered=_noises, is_word=True, take=_read_noise)
_EFFORT = Kind(_read_effort, f"a number above 0, at most {MOST_EFFORT}", decimal_text)
_POSITIVE = Kind(_read_positive, "a positive number: {} = 2")
_PART = Kind(_read_part, "a part, as {} = '5%' or 0.05")
_CLIP = Kind(_read_clip, f"one of {', '.join(_quoted(CLIPS))}, or a number above 0", known=CLIPS)
_WHOLE = Kind(_read_whole, "a whole number from 1: {} = 10")
_TEXT = Kind(lambda text, given: text)
_BYTES = Kind(
    lambda text, given: read_bytes(text),
    "an amount of memory: {} = '8GB'",
    show=lambda kept: show_bytes(request_memory() if kept is None else kept),
)
_SHOWN = _words("off", "on", "text")
_STYLES = _words("qmark", "named", "numeric", "format", "pyformat")


def _own(name: str, help: str, kind: Kind, default: float | None = None) -> Setting:
    """An option of one SELECT, which is read with the statement."""
    return Setting(name, help, OptionPlace.SELECT, kind, default, error=ProgrammingError)


_ALL = (
    Setting(
        "epsilon",
        "what each request costs",
        EVERYWHERE,
        # none: what a request spends is for who asks to say
        _EPSILON,
        command_line=CommandLine(
            "E", "Epsilon of every request.", "Epsilon of the whole file.", ("-e",)
        ),
    ),
    Setting(
        "delta",
        "what each request costs beside epsilon where its noise is Gaussian",
        EVERYWHERE,
        _DELTA,
        # pure epsilon, the stronger promise, unless a delta is given
        Fraction(0),
        command_line=CommandLine(
            "D", "Delta of every Gaussian request.", "Delta of the whole file (Gaussian noise)."
        ),
    ),
    Setting(
        "noise",
        "the law of the noise; auto has the least expected error",
        EVERYWHERE,
        _NOISE,
        # the error of each law is forecast exactly, and the smallest is taken (decision 51)
        "auto",
        command_line=CommandLine("NOISE", "laplace or gaussian."),
    ),
    Setting(
        "mechanism",
        "the family of strategies to choose from, or how a model is learned that answers",
        BOTH,
        _words(*MECHANISMS, offered=("auto", *sorted({*FAMILIES, *LEARNED} - _SELDOM))),
        # the plan of least error that was found: never far off plain noise (decision 40)
        "auto",
        alike="model",
    ),
    Setting(
        "model",
        "how a synthetic table is learned",
        OptionPlace.CREATE,
        _words(*MODELS),
        # by public facts of the workload alone (learn/choose.py)
        "auto",
        alike="mechanism",
        error=ProgrammingError,
    ),
    Setting(
        "metric",
        "which error is to be small: each beside what it is alone, the mean, or the largest",
        BOTH | OptionPlace.CREATE,
        _words("fair", "mean", "max"),
        # nobody's answer is worse for being asked beside others (decision 195)
        "fair",
    ),
    Setting(
        "rounds",
        "how often a mechanism that learns a model looks",
        BOTH | OptionPlace.CREATE,
        _count("count", *WORDS),
        # as many as suit a mechanism and its candidates (learn/schedule.py)
        AUTO,
        early=True,
    ),
    Setting(
        "per_round",
        "how many queries it asks in each round",
        BOTH | OptionPlace.CREATE,
        _count("each", "auto"),
        kept="rounds",
        early=True,
    ),
    Setting(
        "effort",
        "how much to search for a better strategy; it changes planning time, not the cost",
        BOTH,
        _EFFORT,
        # 1 is the counted work of decision 72: seconds for most statements, and more gains little
        Fraction(1),
        command_line=CommandLine("N", "How much to search for a better strategy; default 1."),
    ),
    Setting(
        "reuse",
        "when an earlier release answers: where it is as accurate as a new one, always, never",
        OptionPlace.SET,
        _words("auto", "always", "never"),
        # budget is never spent on numbers that are no better than those at hand (decision 31)
        "auto",
    ),
    Setting(
        "fresh",
        "pay again for new noise: the same as reuse = 'never'",
        OptionPlace.SET,
        switch(_reuse, lambda reuse: reuse == "never"),
        kept="reuse",
        error=ProgrammingError,
    ),
    Setting(
        "nonnegative",
        "project counts to what counts can be",
        OptionPlace.SET,
        switch(lambda is_on, given: is_on, bool),
        # projected counts are biased, and have no standard errors
        False,
        error=ProgrammingError,
    ),
    Setting(
        "dialect",
        "whose SQL statements are in; a server's sessions begin with postgres",
        OptionPlace.SET,
        _words(*DIALECTS),
        # the dialect in which answers are evaluated: nothing to translate (decision 237)
        "duckdb",
        error=ProgrammingError,
    ),
    Setting(
        "memory_limit",
        "the memory that a request may need, by a forecast: half of the machine's by default",
        OptionPlace.SET,
        # no number: half of this machine's, as rows have the other half (decision 93)
        _BYTES,
        command_line=CommandLine("SIZE", "Memory that a request may need, as 8GB."),
    ),
    # 1: every statement counts alike
    _own("weight", "how much the errors of this statement count in a workload", _POSITIVE, 1.0),
    # none of those below: a statement is promised, bounded or clipped only where it says so
    _own("max_stddev", "the least epsilon at which no number shown has a larger error", _POSITIVE),
    _own(
        "within", "the least epsilon at which no count shown is further off than this part", _PART
    ),
    _own("max_groups_contributed", "groups that a privacy unit counts in, by lot", _WHOLE),
    _own("max_rows_contributed", "rows that a privacy unit counts with, by lot", _WHOLE),
    _own("min_privacy_units_per_group", "leave out groups of fewer units, with noise", _WHOLE),
    _own("privacy_unit_column", "the privacy unit that the catalog declares", _TEXT),
    _own(
        "group_selection_strategy",
        "which groups are shown: declared ones are, whichever is named",
        _words("public_groups", "laplace_threshold"),
    ),
    _own("reconstruct", "how answers follow from what was measured", _words(*RECONSTRUCTIONS)),
    _own("clip", "where values of a sum are clipped from above: a number, or a rule", _CLIP),
    _own("sum_mechanism", "what a batch of clipped sums measures", _words(*SUM_MECHANISMS)),
    _own("keys", "private finds keys that nobody listed, of the same epsilon", _words(*KEYS)),
    Setting(
        "discovery_delta",
        "the chance with which keys may be released that only one privacy unit has",
        OptionPlace.FIND | OptionPlace.SELECT,
        # none: the catalog says how much there is, a request takes a part of it (decision 185)
        _DELTA,
    ),
    Setting(
        "analyst",
        "whose budget requests are charged to as well, where the catalog declares analysts",
        OptionPlace.CONNECT,
        _TEXT,
        command_line=CommandLine("NAME", "Whose budget is charged, if any is declared."),
    ),
    Setting(
        "files",
        "the one folder whose files SQL may name",
        OptionPlace.CONNECT,
        # none: no file is reached unless its folder was granted (decision 33)
        _TEXT,
        command_line=CommandLine("DIR", "Whose files SQL may name; default: here."),
    ),
    # off: a column more changes what tools expect of a SELECT (decision 86)
    Setting(
        "show_stddev", "errors in rows, as columns or text", OptionPlace.CONNECT, _SHOWN, "off"
    ),
    # qmark, which DuckDB and sqlite3 have
    Setting(
        "paramstyle", "marks of parameters, as in PEP 249", OptionPlace.CONNECT, _STYLES, "qmark"
    ),
)

SETTINGS = {each.name: each for each in _ALL}

FACTS = ("budget", "domains", "ledger", "tables")
"""Facts that SHOW tells beside the settings."""


def options_of(taker: OptionPlace) -> tuple[str, ...]:
    """Return the names of the options that all of ``taker`` take, in order.

    >>> options_of(OptionPlace.EXECUTE)
    ('epsilon', 'delta', 'noise')
    """
    return tuple(each.name for each in SETTINGS.values() if taker in each.takers)


def shown() -> tuple[str, ...]:
    """Return what SHOW takes."""
    return (*FACTS, *options_of(OptionPlace.SET))
