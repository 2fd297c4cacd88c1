"""A connection from options as the user wrote them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from dpsql.errors import DataError, UsageError

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection

T = TypeVar("T")

LARGEST_EPSILON = Fraction(10**6)
"""What the limits of a catalog cannot exceed; the catalog's own are checked on connecting."""


def open_connection(
    catalog: str,
    epsilon: str | None = None,
    delta: str | None = None,
    noise: str | None = None,
    effort: str | None = None,
    analyst: str | None = None,
    files: str | None = None,
) -> Connection:
    """Connect with options as the user wrote them; without ``files`` SQL may use those here.

    Raises: UsageError for a malformed option; other errors of ``dpsql.connect``; Interrupted.
    """
    from dpsql.engine.charges import Charges, interruptible

    def connect() -> Connection:
        from dpsql.dbapi import connection as dbapi

        connection = dbapi.connect(
            catalog,
            epsilon=None if epsilon is None else dbapi.parse_epsilon_text(epsilon, LARGEST_EPSILON),
            delta=None if delta is None else dbapi.parse_delta_text(delta),
            noise=noise,
            analyst=analyst,
            files=files,
        )
        if files is None:
            connection.grant_here()
        if effort is not None:
            connection.set("effort", effort)
        return connection

    with blaming_options():
        return interruptible(connect, Charges())


def sit(connection: Connection, work: Callable[[], T], close: Callable[[], None]) -> T:
    """Use a connection and close it; Ctrl-C says what was charged. Raises: Interrupted."""

    def use() -> T:
        try:
            return work()
        finally:
            close()

    return connection.interruptible(use)


@contextlib.contextmanager
def blaming_options() -> Iterator[None]:
    """Turn a complaint about an option's value into a usage error."""
    try:
        yield
    except DataError as error:
        raise UsageError(error.code, error.message, hint=error.hint) from None
