"""Handshake of a client: TLS, its name, its password, or the wish to cancel another's statement."""

from __future__ import annotations

import re
import secrets
import ssl
import struct
import threading
import time
from collections.abc import Callable

from dpsql import __version__
from dpsql.errors import printable
from dpsql.records import dataclass, field
from dpsql.server.client_socket import ClientSocket
from dpsql.server.databases import Database, Databases
from dpsql.server.events import Events
from dpsql.server.messages import (
    CANCEL_REQUEST,
    GSS_REQUEST,
    MOST_SECRET,
    SSL_REQUEST,
    Fields,
    Notice,
    ProtocolError,
    authentication,
    backend_key,
    message,
    parameter_status,
    parse_options,
    read_message,
    read_startup,
)
from dpsql.server.scram import BOUND, MECHANISM, Exchange, ScramError, Verifier
from dpsql.server.twin_server import MAINTENANCE

PATIENCE = 60.0
"""Seconds that a client may take until it has signed in, as in PostgreSQL."""
FREE_TRIES, FIRST_DELAY, LONGEST_DELAY = 3, 0.5, 8.0
"""Failures of an address within a minute that cost no time; the seconds of the next, twice as many
for each after it; and the most."""
TRIES_OF_NAME, DELAY_OF_NAME = 20, 1.0
"""Failures of a name within a minute, from wherever, after which a try takes so many seconds."""
MOST_NOTED = 10_000
"""Names and addresses whose failures are remembered, so that a flood of them fills no memory."""
VERSION = "16.0"
"""The release of PostgreSQL that clients should expect where none answers them."""
ENCODINGS = frozenset({"utf8", "unicode", "'utf8'", "'utf-8'", "utf-8", "sql_ascii"})


class Refusal(Exception):
    """A client that may not come in, and what it is told."""

    def __init__(self, state: str, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.told = Notice("FATAL", state, text, hint=hint)


SETTING = re.compile(r"(?:^|\s)(?:-c\s*|--)([\w-]+)=((?:\\.|[^\s\\])*)")
"""A setting in the options of a startup message, blanks in its value behind a backslash."""


@dataclass(frozen=True, slots=True)
class Login:
    """A guest who has signed in: where, name, analyst charged, and what the client said.

    ``verifier`` is what the password was held against.
    """

    database: Database
    user: str
    analyst: str | None
    options: dict[str, str]
    process: int
    secret: int
    verifier: Verifier

    @property
    def settings(self) -> dict[str, str]:
        """The settings to begin with: of the startup message, and ``-c name=value`` of options."""
        found = {name: text for name, text in self.options.items() if name != "options"}
        for name, text in SETTING.findall(self.options.get("options", "")):
            found[name.replace("-", "_")] = re.sub(r"\\(.)", r"\1", text)
        return found


@dataclass
class Failures:
    """Sign-ins that failed within the last minute, by address and by name: who tries again waits.

    Nobody is locked out: a right password is let in, after as long as a wrong one is refused. A
    stranger's failures delay others of the same address, and others of the same name but a little.
    Whether a name exists makes no difference. ``first`` is the first delay of an address, and
    ``of_name`` that of a name, in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    first: float = FIRST_DELAY
    of_name: float = DELAY_OF_NAME
    _times: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def delay(self, name: str, address: str) -> float:
        """Seconds that a try is to wait before it is told anything."""
        with self._lock:
            here = len(self._recent(("address", address)))
            named = len(self._recent(("name", name)))
        over = here - FREE_TRIES
        of_address = min(LONGEST_DELAY, self.first * 2**over) if over >= 0 else 0.0
        return max(of_address, self.of_name if named >= TRIES_OF_NAME else 0.0)

    def wait(self, name: str, address: str) -> float:
        """Wait as long as that is, and return it; not on an event loop."""
        seconds = self.delay(name, address)
        self._ended.wait(seconds)
        return seconds

    def note(self, name: str, address: str) -> None:
        """Note one more failed sign-in."""
        with self._lock:
            if len(self._times) > MOST_NOTED:  # others do not make these be forgotten
                kept = sorted(self._times, key=lambda key: len(self._recent(key)))[
                    -MOST_NOTED // 2 :
                ]
                self._times = {each: self._times[each] for each in kept}
            for key in (("address", address), ("name", name)):
                self._times[key] = [*self._recent(key), self.clock()][-TRIES_OF_NAME:]

    def close(self) -> None:
        """Let whoever waits go on."""
        self._ended.set()

    def _recent(self, key: tuple[str, str]) -> list[float]:
        return [at for at in self._times.get(key, ()) if at > self.clock() - 60]


@dataclass
class Admission:
    """The decision on who comes in. ``cancel`` ends the statement of the session with such a key.

    A client that names no database, or ``postgres``, comes to the first. One that names what is no
    database is told so once it has shown a password of the first: strangers see no difference.
    ``binding`` is what sign-ins under TLS can be bound to.
    """

    databases: Databases
    tls: ssl.SSLContext | None
    needs_tls: bool
    cancel: Callable[[int, int], None]
    number: Callable[[], int]
    failures: Failures = field(default_factory=Failures)
    binding: bytes | None = None
    events: Events = field(default_factory=Events)

    def __post_init__(self) -> None:
        self._secrets = {each: self.databases.secret(each) for each in self.databases}

    def welcome(self, wire: ClientSocket) -> Login | None:
        """Let a client in; None for one that only came to cancel.

        Raises: Refusal; ProtocolError; Hangup.
        """
        wire.expect(PATIENCE)
        who = {"user": "", "address": wire.address, "method": "wire", "database": ""}
        try:
            options = self._greet(wire)
            if options is None:
                return None
            who["user"] = options.get("user", "")
            database = self._database(options)
            who["database"] = "" if database is None else database.name
            guest = self._admit(wire, options, database)
        except (Refusal, ProtocolError) as error:
            state = error.told.state if isinstance(error, Refusal) else error.state
            self.events.note("sign-in", **who, outcome="failed", state=state)
            raise
        self.events.note("sign-in", **who, outcome="in", number=guest.process)
        self._introduce(wire, guest)
        wire.expect(None)
        return guest

    def _database(self, options: dict[str, str]) -> Database | None:
        """The database that a client wants; None where there is none of the name."""
        user = options["user"]
        asked = options.get("database", user)
        is_any = asked.casefold() in (user.casefold(), MAINTENANCE)
        return self.databases.find(asked) or (self.databases.first if is_any else None)

    def _admit(
        self, wire: ClientSocket, options: dict[str, str], database: Database | None
    ) -> Login:
        """The guest that a client has shown to be. Raises: Refusal; ProtocolError; Hangup."""
        user = options["user"]
        key = user.casefold()
        verifier = self._sign_in(wire, user, database or self.databases.first)
        if database is None:
            text = f'database "{printable(options.get("database", user))}" does not exist'
            names = " or ".join(map(printable, self.databases.admitting(key)))
            raise Refusal("3D000", text, names and f"connect to {names}")
        analysts = database.site.analysts
        if analysts and key not in analysts:
            raise Refusal("28000", f'"{printable(user)}" is not an analyst of this catalog')
        analyst = key if analysts else None
        # 32 bits: a cancel request has room for no more.
        number, secret = self.number(), secrets.randbits(32)
        return Login(database, user, analyst, options, number, secret, verifier)

    def _greet(self, wire: ClientSocket) -> dict[str, str] | None:
        """The options of a client's startup message, under TLS where that is wanted."""
        is_secure = False
        for _ in range(4):
            code, body = read_startup(wire)
            if code == CANCEL_REQUEST and len(body) == 8:
                self.cancel(*struct.unpack("!iI", body))
                return None
            if code == SSL_REQUEST and self.tls is not None and not is_secure:
                if wire.is_waiting:
                    raise ProtocolError("received unencrypted data after an SSL request")
                wire.write(b"S")
                wire.flush()
                wire.secure(self.tls)
                is_secure = True
            elif code in (SSL_REQUEST, GSS_REQUEST):
                wire.write(b"N")
                wire.flush()
            elif code >> 16 == 3:
                # The upper half is the version of the protocol, the lower its minor one.
                if self.needs_tls and not is_secure:
                    raise Refusal("28000", "connections from elsewhere need TLS", "sslmode=require")
                return self._read_options(wire, code & 0xFFFF, body)
            else:
                raise Refusal("0A000", "unsupported frontend protocol: only 3.0 is supported")
        raise ProtocolError("too many requests before the startup message")

    def _read_options(self, wire: ClientSocket, minor: int, body: bytes) -> dict[str, str]:
        options = parse_options(body)
        unknown = [name for name in options if name.startswith("_pq_.")]
        if minor or unknown:
            names = b"".join(name.encode() + b"\0" for name in unknown)
            wire.write(message(b"v", struct.pack("!ii", 0, len(unknown)) + names))
        if not options.get("user"):
            raise Refusal("28000", "no PostgreSQL user name specified in startup packet")
        if options.get("replication", "false").lower() not in ("false", "off", "0", "no"):
            raise Refusal("0A000", "replication is not supported")
        encoding = options.get("client_encoding", "UTF8")
        if encoding.lower() not in ENCODINGS:
            text = f'invalid value for parameter "client_encoding": "{printable(encoding)}"'
            raise Refusal("22023", text, "UTF8")
        return options

    def _sign_in(self, wire: ClientSocket, user: str, database: Database) -> Verifier:
        """SCRAM; a name that nobody has fails as a wrong password does. Raises: Refusal."""
        known = database.users.find(user)
        verifier = known or Verifier.mock(self._secrets[database], user.casefold())
        binding = self.binding if wire.is_secure else None
        offered = [MECHANISM] if binding is None else [BOUND, MECHANISM]
        # 10, 11 and 12 are PostgreSQL's SASL, SASLContinue and SASLFinal.
        wire.write(authentication(10, b"".join(each.encode() + b"\0" for each in offered) + b"\0"))
        wire.flush()
        failed = Refusal("28P01", f'password authentication failed for user "{printable(user)}"')
        try:
            first = Fields(self._answer(wire))
            chosen = first.text()
            exchange = Exchange(verifier, binding, chosen == BOUND)
            if chosen not in offered:
                raise ProtocolError("client selected an invalid SASL authentication mechanism")
            wire.write(authentication(11, exchange.first(first.take(first.long()))))
            wire.flush()
            proof = exchange.final(self._answer(wire))
        except ScramError:
            self.failures.note(user.casefold(), wire.address)
            self._wait(user, wire.address)
            raise failed from None
        if known is None:  # whose verifier no proof fits
            raise failed
        self._wait(user, wire.address)
        wire.write(authentication(12, proof))
        wire.write(authentication(0))
        return known

    def _wait(self, user: str, address: str) -> None:
        """Wait as long as a try of a name from an address is to."""
        seconds = self.failures.wait(user.casefold(), address)
        if seconds:
            told = {"user": user, "address": address, "method": "wire", "seconds": seconds}
            self.events.note("delay", **told)

    def _answer(self, wire: ClientSocket) -> bytes:
        found = read_message(wire, MOST_SECRET)
        if found.kind != b"p":
            raise ProtocolError("expected SASL response")
        return found.body

    def _introduce(self, wire: ClientSocket, guest: Login) -> None:
        twin = guest.database.twin
        release = VERSION if twin is None else twin.release
        told = {
            "server_version": f"{release} (dpsql {__version__})",
            "server_encoding": "UTF8",
            "client_encoding": "UTF8",
            "application_name": guest.options.get("application_name", ""),
            "DateStyle": "ISO, MDY",
            "IntervalStyle": "postgres",
            "TimeZone": "UTC",
            "integer_datetimes": "on",
            "standard_conforming_strings": "on",
            "is_superuser": "off",
            "session_authorization": guest.user,
            "default_transaction_read_only": "on",
            "in_hot_standby": "off",
        }
        for name, value in told.items():
            wire.write(parameter_status(name, value))
        wire.write(backend_key(guest.process, guest.secret))
