"""The entrance: whether a name and a password are those of a user, told in one way."""

from __future__ import annotations

import secrets

from dpsql.records import dataclass, field
from dpsql.server.databases import Database, Databases
from dpsql.server.handshake import Failures
from dpsql.server.scram import Verifier

REFUSED = "The name or the password is not right."
"""The one answer to everybody who is not let in, whatever the reason."""
MOST_NAME = 100
"""Characters of a name that are looked at; none that may sign in is as long."""


@dataclass(frozen=True, slots=True)
class SignedInUser:
    """A person who has come in: where, name, analyst charged, whether they ask, and are curator."""

    database: Database
    user: str
    analyst: str | None
    may_ask: bool
    is_curator: bool
    verifier: Verifier


@dataclass(frozen=True)
class SignIn:
    """Lets users in by the verifiers that PostgreSQL's clients are let in by."""

    databases: Databases
    failures: Failures = field(default_factory=Failures)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def sign_in(
        self, database: Database, name: str, password: str, address: str = ""
    ) -> SignedInUser | None:
        """Return who signs in; None for others. Raises: CatalogError for an unusable users file.

        Whoever is told of it is told after ``failures.delay``.

        Args:
            database: where to.
            name: the user's name, in any case.
            password: as it was typed.
            address: where from.

        Guarantee: a name that nobody has takes the same steps as a wrong password.
        """
        key = name[:MOST_NAME].casefold()
        who = self.recognise(database, key)
        verifier = who.verifier if who else Verifier.mock(self.secret, key)
        is_right = verifier.matches(password) and who is not None
        if not is_right:
            self.failures.note(key, address)
        return who if is_right else None

    def delay(self, name: str, address: str) -> float:
        """Seconds until a try of a name is told what came of it."""
        return self.failures.delay(name[:MOST_NAME].casefold(), address)

    def recognise(self, database: Database, user: str) -> SignedInUser | None:
        """Return the present rights of a user, whose name is case-folded; None where there is none.

        Raises: CatalogError.
        """
        analysts, verifier = database.site.analysts, database.users.find(user)
        is_curator = user in database.users.curators()
        is_analyst = user in analysts
        if verifier is None or (analysts and not (is_analyst or is_curator)):
            return None
        may_ask = is_analyst or not analysts
        analyst = user if is_analyst else None
        return SignedInUser(database, user, analyst, may_ask, is_curator, verifier)

    def recognising(self, user: str) -> list[str]:
        """Return the names of the databases where a user has rights. Raises: CatalogError."""
        return [each.name for each in self.databases if self.recognise(each, user) is not None]
