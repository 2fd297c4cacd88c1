"""A dialect of SQLAlchemy: ``dpsql:///catalog.toml?epsilon=0.5&analyst=ana``.

The path is relative with three slashes and absolute with four. Options are those of ``connect``,
and every setting of a session that SET takes. Nothing is written: there are no tables to create.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from sqlalchemy import types
from sqlalchemy.engine import URL, Connection
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import ArgumentError, NoSuchTableError
from sqlalchemy.sql.compiler import SQLCompiler

from dpsql.dbapi.reflection import columns_of, comment_of, view_text
from dpsql.errors import nearest
from dpsql.settings.table import OptionPlace, options_of

TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    "integer": types.BigInteger,
    "number": types.Double,
    "decimal": types.Numeric,
    "text": types.Text,
    "date": types.Date,
    "timestamp": types.DateTime,
    "time": types.Time,
    "boolean": types.Boolean,
}
"""By the types of a catalog; any other is ``NullType``."""


class DpsqlCompiler(SQLCompiler):
    """SELECT as dpsql reads it: LIMIT and OFFSET are numbers, not parameters."""

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """LIMIT and OFFSET."""
        kw["literal_execute"] = True
        clauses = (("LIMIT", select._limit_clause), ("OFFSET", select._offset_clause))
        return "".join(
            f"\n {word} {self.process(each, **kw)}" for word, each in clauses if each is not None
        )


class DpsqlDialect(DefaultDialect):
    """The catalog's tables, views and columns; statements as they are written."""

    name = "dpsql"
    driver = "dpsql"
    default_paramstyle = "qmark"
    statement_compiler = DpsqlCompiler
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_alter = False
    supports_comments = True
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    supports_multivalues_insert = False
    insert_returning = update_returning = delete_returning = False
    postfetch_lastrowid = False
    default_schema_name = None

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """The module of PEP 249."""
        import dpsql  # a classmethod is asked for it when an engine is made

        return dpsql

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """The catalog's path and the options of a URL. Raises: ArgumentError."""
        if url.host or url.username or url.port:
            what = "dpsql:// opens a catalog beside you: dpsql:///catalog.toml"
            raise ArgumentError(f"{what}; for `dpsql serve` use postgresql+psycopg://")
        if not url.database:
            raise ArgumentError("there is no catalog in the URL: dpsql:///catalog.toml?epsilon=0.5")
        known = options()
        given: dict[str, str] = {}
        for name, value in url.query.items():
            if name not in known:
                near = nearest(name, known)
                hint = f"did you mean {near}?" if near else f"options: {', '.join(known)}"
                raise ArgumentError(f"unknown option {name!r} in the URL of dpsql; {hint}")
            if not isinstance(value, str):
                raise ArgumentError(f"the option {name!r} stands twice in the URL of dpsql")
            given[name] = value
        return [url.database], given

    def connect(self, *cargs: Any, **cparams: Any) -> Any:
        """A connection with the options as texts of SET. Raises: dpsql.Error."""
        import dpsql  # as above

        words = {k: v for k, v in cparams.items() if k not in options_of(OptionPlace.SET)}
        connection = dpsql.connect(*cargs, **words)
        try:
            for name in cparams.keys() - words.keys():
                connection.set(name, cparams[name])
        except BaseException:
            connection.close()
            raise
        return connection

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        """True if another connection would do."""
        return getattr(e, "code", "") in ("E_CLOSED", "E_FORK")

    def do_ping(self, dbapi_connection: Any) -> bool:
        """True if a connection is open."""
        dbapi_connection.commit()
        return True

    def initialize(self, connection: Connection) -> None:
        """Ask the catalog nothing at first."""

    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        """There is one, ``main``, which need not be named."""
        return ["main"]

    def get_table_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        """The tables of the catalog, and synthetic ones."""
        return [table.name for table in known_to(connection).tables.values()]

    def get_view_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        """The views of the catalog."""
        return [view.name for view in known_to(connection).views.values()]

    def has_table(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """True if there is such a table or view."""
        return columns_of(known_to(connection), table_name) is not None

    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedColumn]:
        """The declared columns, their values as comments. Raises: NoSuchTableError."""
        found = columns_of(known_to(connection), table_name)
        if found is None:
            raise NoSuchTableError(table_name)
        return [
            ReflectedColumn(
                name=each.name,
                type=TYPES.get(each.type, types.NullType)(),
                nullable=each.null,
                default=None,
                comment=each.comment or None,
            )
            for each in found
        ]

    def get_view_definition(
        self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any
    ) -> str:
        """The SQL of a view. Raises: NoSuchTableError."""
        found = view_text(known_to(connection), view_name)
        if found is None:
            raise NoSuchTableError(view_name)
        return found

    def get_table_comment(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """The privacy unit of a table."""
        return {"text": comment_of(known_to(connection), table_name)}

    def get_pk_constraint(self, *args: Any, **kw: Any) -> Any:
        """None is declared."""
        return {"constrained_columns": [], "name": None}

    def _nothing(self, *args: Any, **kw: Any) -> list[Any]:
        """None is declared."""
        return []

    get_foreign_keys = get_indexes = get_unique_constraints = get_check_constraints = _nothing
    get_temp_table_names = get_temp_view_names = get_sequence_names = _nothing


def options() -> Sequence[str]:
    """Return the options of a URL: keywords of ``connect`` but ``paramstyle``, all of SET."""
    names = (*options_of(OptionPlace.CONNECT), *options_of(OptionPlace.SET))
    return [name for name in dict.fromkeys(names) if name != "paramstyle"]


def known_to(connection: Connection) -> Any:
    """The public facts of a connection, synthetic tables included."""
    return connection.connection.dbapi_connection.known  # type: ignore[union-attr]
