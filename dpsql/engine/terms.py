"""On what terms requests are made: epsilon, delta, noise, and what may be answered again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Generic, TypeVar

from dpsql.catalog import Catalog
from dpsql.errors import DataError, InterfaceError, ProgrammingError, printable
from dpsql.plan.request import Request
from dpsql.records import dataclass, field, replace
from dpsql.sealed import SealedConnection
from dpsql.settings.rounds import Rounds
from dpsql.settings.table import SETTINGS, OptionPlace, options_of
from dpsql.sql.compiled import Compiled

T = TypeVar("T")


class SettingAttribute(Generic[T]):
    """A typed attribute of ``Terms``: the value of the setting of the same name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, terms: Terms, owner: type) -> T:
        """Return the value of the setting."""
        value: T = terms.values[self.name]
        return value


def _defaults() -> dict[str, Any]:
    session = [SETTINGS[name] for name in options_of(OptionPlace.SET)]
    return {each.name: each.default for each in session if not each.kept}


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings of a session by name; epsilon is None until it is set.

    ``limit`` is the largest epsilon of one request that the catalog allows.
    """

    limit: Fraction
    values: Mapping[str, Any] = field(default_factory=_defaults)

    epsilon = SettingAttribute[Fraction | None]()
    delta = SettingAttribute[Fraction]()
    noise = SettingAttribute[str]()
    mechanism = SettingAttribute[str]()
    metric = SettingAttribute[str]()
    rounds = SettingAttribute[Rounds]()
    effort = SettingAttribute[Fraction]()
    reuse = SettingAttribute[str]()
    nonnegative = SettingAttribute[bool]()
    memory_limit = SettingAttribute[int | None]()
    dialect = SettingAttribute[str]()

    @classmethod
    def of(cls, catalog: Catalog) -> Terms:
        """The terms of a session that has set nothing yet."""
        whole = catalog.budget
        return cls(whole.max_epsilon_per_request).having(epsilon=whole.default_epsilon)

    def having(self, **values: object) -> Terms:
        """The terms with other values of some settings."""
        return replace(self, values={**self.values, **values})

    def with_values(self, values: Mapping[str, object]) -> Terms:
        """The terms with Python values for epsilon, delta and noise.

        Raises: DataError (E_EPSILON, E_DELTA, E_SETTING).
        """
        terms = self
        for name, setting in SETTINGS.items():
            if name in values and setting.kind.take is not None:
                terms = terms.having(**{name: setting.kind.take(values[name], self._given)})
        return terms

    def with_text(self, name: str, text: str) -> Terms:
        """The terms after SET name = text.

        Raises: DataError (E_EPSILON, E_DELTA, E_SETTING); ProgrammingError (E_SETTING).
        """
        if not isinstance(text, str):
            raise InterfaceError("E_SETTING", f"{name} is set by text", hint="SET epsilon = 0.5")
        if name not in options_of(OptionPlace.SET):
            what = f"{name} = {printable(text)}"
            raise ProgrammingError("E_SETTING", what, hint=f"SET {name} = on, or off")
        setting = SETTINGS[name]
        read = setting.read(text.lower() if setting.kind.is_word else text, self._given)
        return self.having(**{setting.key: read})

    @property
    def _given(self) -> dict[str, Any]:
        return {**self.values, "limit": self.limit}

    @property
    def fresh(self) -> bool:
        """True if everything is measured anew."""
        return self.reuse == "never"

    @property
    def reconstruct(self) -> str:
        """The method of inferring answers from measurements, where a statement names none."""
        return "nonnegative" if self.nonnegative else "gls"

    def display(self) -> dict[str, str]:
        """The settings as SHOW prints them."""
        session = [SETTINGS[name] for name in options_of(OptionPlace.SET)]
        return {each.name: each.kind.show(self.values[each.key]) for each in session}


def form_request(
    workload: Sequence[Compiled],
    terms: Terms,
    default: Fraction | None,
    least: Callable[[Sequence[Compiled], Terms], Fraction] | None = None,
) -> Request:
    """Form the request for statements on given terms; ``default`` is the epsilon where none is set.

    ``least`` finds the epsilon that statements take which demand an error.

    Raises: DataError (E_EPSILON) where there is no default either.
    """
    measured = (item for item in workload if not (item.is_static or item.is_modelled))
    if any(item.demands for item in measured):
        return _request_at(workload, terms, (least or demanded_epsilon)(workload, terms))
    return _request_at(workload, terms, require_epsilon(terms, default))


def demanded_epsilon(
    workload: Sequence[Compiled], terms: Terms, sealed: SealedConnection | None = None
) -> Fraction:
    """The least epsilon that keeps to the errors that statements demand.

    ``sealed`` works out the errors of what is computed from noisy numbers.
    """
    from dpsql.engine.error_targets import worst_ratio  # few statements demand an error
    from dpsql.plan.goal import least_epsilon

    ratio = partial(worst_ratio, sealed=sealed)
    return least_epsilon(partial(_request_at, workload, terms), terms.limit, ratio)


def _request_at(workload: Sequence[Compiled], terms: Terms, epsilon: Fraction) -> Request:
    return Request(
        tuple(workload),
        epsilon,
        terms.delta,
        terms.noise,
        terms.mechanism,
        terms.effort,
        terms.reconstruct,
        metric=terms.metric,
        rounds=terms.rounds,
        memory=terms.memory_limit,
    )


def require_epsilon(terms: Terms, default: Fraction | None = None) -> Fraction:
    """The epsilon that is set, else the default. Raises: DataError (E_EPSILON)."""
    epsilon = default if terms.epsilon is None else terms.epsilon
    if epsilon is None:
        raise DataError(
            "E_EPSILON", "no epsilon is set", hint="SET epsilon = 0.5, or --epsilon 0.5"
        )
    return epsilon
