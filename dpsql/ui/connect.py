"""A connection from options as the user wrote them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import DataError, UsageError

if TYPE_CHECKING:
    from dpsql.dbapi import Connection

LARGEST_EPSILON = Fraction(10**6)
"""What the limits of a catalog cannot exceed; the catalog's own are checked on connecting."""


def open_connection(
    catalog: str,
    epsilon: str | None = None,
    delta: str | None = None,
    noise: str | None = None,
    effort: str | None = None,
    analyst: str | None = None,
) -> Connection:
    """Connect with options as the user wrote them.

    Raises: UsageError for a malformed option; other errors of ``dpsql.connect``.
    """
    from dpsql import dbapi

    with blaming_options():
        connection = dbapi.connect(
            catalog,
            epsilon=None if epsilon is None else dbapi.parse_epsilon_text(epsilon, LARGEST_EPSILON),
            delta=None if delta is None else dbapi.parse_delta_text(delta),
            noise=noise,
            analyst=analyst,
        )
        if effort is not None:
            connection.set("effort", effort)
        return connection


@contextlib.contextmanager
def blaming_options() -> Iterator[None]:
    """Turn a complaint about an option's value into a usage error."""
    try:
        yield
    except DataError as error:
        raise UsageError(error.code, error.message, hint=error.hint) from None
