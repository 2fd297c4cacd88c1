"""dpsql: SQL over sensitive tables with differential privacy (PEP 249 surface).

Everything heavy is imported on first use, so that ``import dpsql`` is instant.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dpsql.dbapi.connection import connect
    from dpsql.errors import (
        BudgetExceeded,
        CatalogError,
        DatabaseError,
        DataError,
        Error,
        IntegrityError,
        InterfaceError,
        InternalError,
        Interrupted,
        NotSupportedError,
        OperationalError,
        ProgrammingError,
        Warning,
    )

__version__ = "0.2.0"

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

__all__ = [
    "BudgetExceeded",
    "CatalogError",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Interrupted",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

_TYPES = (
    "BINARY",
    "Binary",
    "DATETIME",
    "Date",
    "DateFromTicks",
    "NUMBER",
    "ROWID",
    "STRING",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
)


def __getattr__(name: str) -> object:
    if name == "connect":
        from dpsql.errors import check_fork

        check_fork()  # before anything is imported: in a child that may take for ever
        from dpsql.sql.text.cycle_collector import uncollected

        with uncollected():  # a tenth of the import: modules stay in use
            # `import dpsql` and `--help` need nothing heavy
            from dpsql.dbapi.connection import connect

        return connect
    if name == "load_ipython_extension":
        from dpsql.integrations.magic import load  # %load_ext dpsql, where IPython is imported

        return load
    if name in __all__:
        from dpsql import errors  # an interrupt before `main` would be a traceback

        return getattr(errors, name)
    if name in _TYPES:
        from dpsql.dbapi import types  # `import dpsql` and `--help` need nothing heavy

        return getattr(types, name)
    raise AttributeError(f"module 'dpsql' has no attribute {name!r}")
