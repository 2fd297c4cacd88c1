"""Databases: the catalogs of one server, each with its rows, ledger, users and twin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.dbapi.site import Site
from dpsql.errors import UsageError, printable
from dpsql.records import dataclass, field
from dpsql.server.catalog_twin import Twin
from dpsql.server.pipelined import ReplyCache
from dpsql.server.users import Users

SALTS = "salts of names that nobody has"
"""The use of a key of a ledger's salt."""


@dataclass(eq=False)
class Database:
    """A catalog as clients know it: its name, its rows and ledger, its users and its twin."""

    name: str
    site: Site
    users: Users
    twin: Twin | None = None
    remembered: ReplyCache = field(default_factory=ReplyCache)

    def admits(self, user: str) -> bool:
        """True if a user, whose name is case-folded, may ask here. Raises: CatalogError."""
        analysts = self.site.analysts
        return (not analysts or user in analysts) and self.users.find(user) is not None


def check_names(names: Sequence[str]) -> None:
    """Refuse names that databases cannot have, or not together. Raises: UsageError (E_USAGE)."""
    hint = "--name NAME for each catalog, in their order"
    for each in names:
        if not each or set(each) & set("/\0"):
            what = f"{printable(each)!r} cannot be the name of a database"
            raise UsageError("E_USAGE", what, hint=hint)
    if len({each.casefold() for each in names}) < len(names):
        what = f"two of the databases have one name: {', '.join(map(printable, names))}"
        raise UsageError("E_USAGE", what, hint=hint)


class Databases:
    """The databases of a server, by name; the first is that of clients which name none.

    Raises: UsageError (E_USAGE), as ``check_names``.
    """

    def __init__(self, *found: Database) -> None:
        check_names([each.name for each in found])
        self._found = {each.name.casefold(): each for each in found}

    @property
    def first(self) -> Database:
        """The database of clients that name none."""
        return next(iter(self))

    def __iter__(self) -> Iterator[Database]:
        return iter(self._found.values())

    def find(self, name: str) -> Database | None:
        """The database of a name in any case, None where there is none; the first of no name."""
        return self._found.get(name.casefold()) if name else self.first

    def admitting(self, user: str) -> Sequence[str]:
        """The names of those where a user may ask, by the name alone. Raises: CatalogError."""
        return [each.name for each in self if each.admits(user)]

    def secret(self, database: Database) -> bytes:
        """The key of salts of names that nobody has: the same after a restart, as those of users.

        Databases with one users file have one, since a user has one salt in all of them.
        """
        own = database.users.path.resolve()
        same = (each for each in self if each.users.path.resolve() == own)
        return next(same).site.engine.key_of(SALTS)

    def close(self) -> None:
        """Let go of the data, and end the twins."""
        for each in self:
            each.site.close()
            if each.twin is not None:
                each.twin.close()
