"""Users who may sign in: a file of names and verifiers, which its owner alone may read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.errors import CatalogError, UsageError, printable
from dpsql.files import exclusive, replace_file
from dpsql.server.messages import MOST_SECRET
from dpsql.server.scram import Verifier

CURATOR = ":curator"
"""The suffix of the line of a user who may see every request on the page."""
_NAME = re.compile(r"[^\W\d][\w.@-]{0,62}")
HINT = "dpsql user add CATALOG NAME"


class Users:
    """A users file: one line of a name and a verifier for each user, and who is a curator.

    It is read at every look, so that whoever is removed cannot sign in any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, name: str) -> Verifier | None:
        """The verifier of a name. Raises: CatalogError for a file that cannot be used."""
        return self.all().get(name.casefold())

    def all(self) -> dict[str, Verifier]:
        """Every verifier, by case-folded name. Raises: CatalogError (E_USERS)."""
        return {name: verifier for name, (verifier, _) in self._read().items()}

    def curators(self) -> frozenset[str]:
        """The case-folded names of those who may see every request. Raises: CatalogError."""
        return frozenset(name for name, (_, curator) in self._read().items() if curator)

    def _read(self) -> dict[str, tuple[Verifier, bool]]:
        try:
            return dict(self._lines(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError):
            raise CatalogError("E_USERS", f"{self.path} cannot be read", hint=HINT) from None

    def _lines(self, text: str) -> Iterator[tuple[str, tuple[Verifier, bool]]]:
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, rest = line.partition(":")
            rest = rest.strip()
            verifier = Verifier.parse(rest.removesuffix(CURATOR))
            if verifier is None or not _NAME.fullmatch(name):
                what = f"line {number} of {self.path} is not a name and a verifier"
                raise CatalogError("E_USERS", what, hint=HINT)
            yield name.casefold(), (verifier, rest.endswith(CURATOR))

    def put(self, name: str, password: str, new: bool, curator: bool = False) -> None:
        """Add a user, or give one another password.

        Whoever is a curator stays one.

        Args:
            name: letters, digits and . @ - _, compared in any case.
            password: never kept; its SCRAM verifier is.
            new: True for a user that must not be there yet, False for one that must.
            curator: True to let a new user see what curators may.

        Raises: UsageError (E_USERS), CatalogError.
        """
        if not _NAME.fullmatch(name):
            what = f"{printable(name)!r} cannot be a user"
            raise UsageError("E_USERS", what, hint="letters, digits and . @ - _, a letter first")
        if not password:
            raise UsageError("E_USERS", "a password cannot be empty")
        if len(password.encode()) > MOST_SECRET:
            raise UsageError("E_USERS", f"a password has at most {MOST_SECRET} bytes")
        with self._changing() as users:
            if new == (name.casefold() in users):
                word, act = ("already", "passwd") if new else ("not", "add")
                what = f"{name} is {word} a user"
                raise UsageError("E_USERS", what, hint=f"dpsql user {act} CATALOG {name}")
            before = not new and users[name.casefold()][1]
            users[name.casefold()] = Verifier.of(password), curator or before

    def remove(self, name: str) -> None:
        """Take a user out. Raises: UsageError (E_USERS), CatalogError."""
        with self._changing() as users:
            if users.pop(name.casefold(), None) is None:
                raise UsageError("E_USERS", f"{printable(name)} is not a user")

    @contextmanager
    def _changing(self) -> Iterator[dict[str, tuple[Verifier, bool]]]:
        """The users, written back whole for their owner alone. Raises: UsageError (E_USERS)."""
        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            with exclusive(lock):
                users = self._read()
                yield users
                lines = [
                    f"{name}:{verifier}{CURATOR if curator else ''}\n"
                    for name, (verifier, curator) in sorted(users.items())
                ]
                replace_file(self.path, "".join(lines).encode())
        except OSError:
            raise UsageError("E_USERS", f"{self.path} cannot be written") from None
