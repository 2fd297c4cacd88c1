"""The entrance: whether a name and a password are those of a user, told in one way."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from dpsql.records import dataclass, field
from dpsql.server.handshake import Failures
from dpsql.server.scram import Verifier
from dpsql.server.users import Users

REFUSED = "The name or the password is not right."
"""The one answer to everybody who is not let in, whatever the reason."""
MOST_NAME = 100
"""Characters of a name that are looked at; none that may sign in is as long."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """A person who has come in: name, analyst charged, whether they ask, and are curator."""

    user: str
    analyst: str | None
    may_ask: bool
    is_curator: bool
    verifier: Verifier


@dataclass(frozen=True)
class SignIn:
    """Lets users in by the verifiers that PostgreSQL's clients are let in by."""

    users: Users
    analysts: Collection[str]
    failures: Failures = field(default_factory=Failures)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def sign_in(self, name: str, password: str, address: str = "") -> Welcome | None:
        """Return who signs in; None for others. Raises: CatalogError for an unusable users file.

        Whoever is told of it is told after ``failures.delay``.

        Guarantee: a name that nobody has takes the same steps as a wrong password.
        """
        key = name[:MOST_NAME].casefold()
        who = self.recognise(key)
        verifier = who.verifier if who else Verifier.mock(self.secret, key)
        is_right = verifier.matches(password) and who is not None
        if not is_right:
            self.failures.note(key, address)
        return who if is_right else None

    def delay(self, name: str, address: str) -> float:
        """Seconds until a try of a name is told what came of it."""
        return self.failures.delay(name[:MOST_NAME].casefold(), address)

    def recognise(self, user: str) -> Welcome | None:
        """Return the present rights of a user, whose name is case-folded; None where there is none.

        Raises: CatalogError.
        """
        verifier = self.users.find(user)
        is_curator = user in self.users.curators()
        is_analyst = user in self.analysts
        if verifier is None or (self.analysts and not (is_analyst or is_curator)):
            return None
        may_ask = is_analyst or not self.analysts
        return Welcome(user, user if is_analyst else None, may_ask, is_curator, verifier)
