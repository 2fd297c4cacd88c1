"""The exceptions as attributes of a connection (PEP 249), for code that has one and no module."""

from __future__ import annotations

from dpsql import errors


class Exceptions:
    """The exceptions of PEP 249 as attributes, for ``except connection.Error``."""

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError
