"""``dpsql serve`` and ``dpsql user``: a server between analysts and data, and who may sign in."""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from dpsql.catalog.read import read_catalog
from dpsql.errors import UsageError, printable
from dpsql.ui.connect import WIDE
from dpsql.ui.narration import tell, tell_note

if TYPE_CHECKING:
    from dpsql.page.serving import Page
    from dpsql.server.address import Address
    from dpsql.server.databases import Database, Databases
    from dpsql.server.server import Server


def users_path(catalog: str, users: str | None) -> Path:
    """Return the path of a catalog's users: beside it unless another file is named."""
    return Path(users) if users else Path(catalog).with_suffix(".users")


@click.command(context_settings=WIDE)
@click.argument("catalogs", metavar="CATALOG...", nargs=-1, required=True)
@click.option("--name", "names", metavar="NAME", multiple=True, help="Of each CATALOG's database.")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:5432", help="Where to listen.")
@click.option("--tls-cert", metavar="FILE", help="The certificate; needed beyond this machine.")
@click.option("--tls-key", metavar="FILE", help="Its key, where it is in a file of its own.")
@click.option("--users", metavar="FILE", help="Who may sign in; CATALOG's .users by default.")
@click.option("--twin", metavar="auto|DSN|off", default="auto", help="The empty PostgreSQL.")
@click.option("--sessions", metavar="N", type=click.IntRange(1, 10_000), default=200)
@click.option("--tick", metavar="1s", help="Answers wait for multiples of it; none by default.")
@click.option("--show-stddev", is_flag=True, help="Columns of standard errors unless SET off.")
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Where /metrics and /health are served.",
)
@click.option("--otlp", metavar="URL", help="An OpenTelemetry collector, which all is sent to.")
@click.option("--http", metavar="PORT|HOST:PORT", help="Where the page is served.")
@click.option("--idle", metavar="30min", help="End sessions that ask nothing for so long.")
@click.option("--lifetime", metavar="12h", help="End sessions that have been there for so long.")
@click.option("--log", type=click.Choice(["text", "json"]), default="text", help="Of each event.")
@click.option("--check", is_flag=True, help="Look at permissions, options and sources, and stop.")
def serve(
    catalogs: tuple[str, ...],
    names: tuple[str, ...],
    listen: str,
    tls_cert: str | None,
    tls_key: str | None,
    users: str | None,
    twin: str,
    sessions: int,
    tick: str | None,
    show_stddev: bool,
    metrics: str | None,
    otlp: str | None,
    http: str | None,
    idle: str | None,
    lifetime: str | None,
    log: str,
    check: bool,
) -> int:
    """Serve the tables of catalogs to analysts over PostgreSQL's protocol.

    Each CATALOG is a database, called like its file unless a --name is given for each.

    SIGHUP reads users, catalog and certificates anew; so does a change of their files.
    """
    from dpsql.server.address import Address
    from dpsql.server.events import Events, JsonLines
    from dpsql.server.supervisor import RELOADED, Supervised, supervise

    addresses = [Address.parse(listen)]
    if http is not None:
        addresses.append(Address.parse(f":{http}" if http.isdigit() else http))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if log == "json":
        logging.getLogger().handlers[0].setFormatter(JsonLines())
    parent = Supervised.find()
    if parent is None and not check:
        return supervise(_arguments(), addresses, Events())
    from dpsql.engine.planning_processes import PlanningProcesses  # the engine: a second
    from dpsql.relation.row_view import of_rooms, of_sources
    from dpsql.server.answer_ticks import Ticks
    from dpsql.server.binding import end_point
    from dpsql.server.catalog_twin import twin_of
    from dpsql.server.idle_clients import SWITCHING
    from dpsql.server.metrics import metrics as measured
    from dpsql.server.metrics import open_metrics
    from dpsql.server.operator_socket import open_control
    from dpsql.server.places import raise_limit
    from dpsql.server.preload import import_all
    from dpsql.server.reload import Certificate
    from dpsql.server.server import Server, read_tls
    from dpsql.server.twin_server import open_twin_server

    limits = _seconds(idle, "--idle"), _seconds(lifetime, "--lifetime")
    if parent is not None:
        addresses = list(map(Address.on, addresses, parent.held))
    address, paged = addresses[0], None if http is None else addresses[1]
    if paged is not None:
        read_tls(_path(tls_cert), _path(tls_key), paged)
    at = None if metrics is None else Address.parse(metrics)
    if otlp is not None:
        from dpsql.server.telemetry import Telemetry, check_collector  # a library that few have

        check_collector(otlp)
    ticks = Ticks() if tick is None else Ticks.parse(tick)
    context = read_tls(_path(tls_cert), _path(tls_key), address)
    binding = None if tls_cert is None else end_point(Path(tls_cert))
    databases = _open_databases(catalogs, names, users)
    if check:
        for each in databases:
            _check(each)
        tell("permissions, users, sources and options are in order")
        databases.close()
        return 0
    if hasattr(signal, "SIGHUP"):  # while it starts there is nothing to be read anew
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    raise_limit()
    planning = PlanningProcesses()
    planning.begin()
    import_all()
    if twin != "off":
        twins = open_twin_server(twin)
        for each in databases:
            each.twin = twin_of(twins, each.name)
    server = Server(
        databases,
        address,
        context,
        sessions,
        ticks,
        binding,
        shows_errors=show_stddev,
        planning=planning,
    )
    server.idle, server.lifetime = limits
    if context is not None and tls_cert is not None:
        server.certificate = Certificate(Path(tls_cert), _path(tls_key), [context])
    served = ", ".join(printable(each.name) for each in databases)
    tell(f"serving {served} on {address.host}:{server.port}; Ctrl-C stops")
    if server.division.sessions < sessions:
        room = f"{server.division.sessions} sessions at once"
        tell_note(f"files that this process may open (ulimit -n) leave room for {room}")
    for each in databases:
        tables = each.site.catalog.tables.values()
        for note in (*of_sources(tables), *of_rooms(tables)):
            tell_note(note)

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough: what was charged is being stored
        raise KeyboardInterrupt

    def reload(number: int, frame: FrameType | None) -> None:
        server.watch.reload()

    signal.signal(signal.SIGTERM, stop)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, reload)
    sys.setswitchinterval(SWITCHING)
    page, watched, sent = None, None, None
    controls = [open_control(server, each) for each in databases]
    try:
        if paged is not None:
            page = _open_page(server, paged, tls_cert, tls_key)
            if page.tls is not None and server.certificate is not None:
                server.certificate.contexts.append(page.tls)
        if otlp is not None:
            sent = Telemetry(otlp, served, lambda: list(measured(server)))
        if at is not None:
            watched = open_metrics(at.host, at.port, server)
        if parent is not None:
            server.events.counts["server", "died"] = parent.restarts
            server.watch.after = partial(parent.tell, RELOADED)
            parent.ready(server.is_well)
        server.serve()
    except KeyboardInterrupt:
        tell("stopped")
    finally:
        for control in controls:
            if control is not None:
                control.close()
        if watched is not None:
            watched.shutdown()
            watched.server_close()
        if page is not None:
            page.close()
        server.close()
        if sent is not None:
            sent.close()
    return 0


def _open_databases(catalogs: Sequence[str], names: Sequence[str], users: str | None) -> Databases:
    """Open catalogs, in which some may sign in. Raises: Error."""
    from dpsql.dbapi.site import open_site  # the engine: a second
    from dpsql.server.databases import Database, Databases, check_names
    from dpsql.server.permissions import refuse_open_files
    from dpsql.server.users import Users

    if names and len(names) != len(catalogs):
        what = f"{len(names)} --name for {len(catalogs)} catalogs"
        raise UsageError("E_USAGE", what, hint="one for each catalog, in their order, or none")
    called = names or [Path(each).stem for each in catalogs]
    check_names(called)
    found = []
    for catalog, name in zip(catalogs, called, strict=True):
        site, known = open_site(catalog), Users(users_path(catalog, users))
        refuse_open_files(site, known)
        if not known.all():
            what = f"{known.path} names nobody who may sign in"
            raise UsageError("E_USERS", what, hint=f"dpsql user add {catalog} NAME")
        found.append(Database(name, site, known))
    return Databases(*found)


def _check(database: Database) -> None:
    """Open every source of a database, and tell what an operator should know of it."""
    from dpsql.relation.row_view import of_rooms

    catalog, users = database.site.catalog, database.users
    database.site.engine.check_sources()
    for note in of_rooms(catalog.tables.values()):
        tell_note(note)
    if catalog.analysts:
        for name in sorted(users.all().keys() - catalog.analysts - users.curators()):
            tell_note(f"{name} is no analyst of {database.name}, and cannot sign in")


def _arguments() -> list[str]:
    """The arguments of the command that runs, as they were given."""
    context, found = click.get_current_context(), list[str]()
    for each in context.command.params:
        value = context.params[each.name or ""]
        if isinstance(value, tuple):
            option = [] if isinstance(each, click.Argument) else [each.opts[0]]
            found += [word for one in value for word in (*option, one)]
        elif isinstance(each, click.Option) and value not in (None, False):
            found += [each.opts[0]] if each.is_flag else [each.opts[0], str(value)]
    return found


def _open_page(server: Server, at: Address, cert: str | None, key: str | None) -> Page:
    try:
        from dpsql.page.serving import open_page  # an HTTP server that few need
    except ImportError:
        what = "the page needs starlette and uvicorn"
        raise UsageError("E_LISTEN", what, hint="pip install 'dpsql[server]'") from None
    page = open_page(server, at, _path(cert), _path(key))
    tell(f"the page is at {'http' if cert is None else 'https'}://{at.host}:{page.port}")
    return page


def _seconds(text: str | None, option: str) -> float:
    """A time as it is typed, 0 for none. Raises: UsageError (E_LISTEN).

    >>> _seconds("30min", "--idle"), _seconds("12h", "--idle"), _seconds(None, "--idle")
    (1800.0, 43200.0, 0.0)
    """
    if text is None:
        return 0.0
    found = re.fullmatch(r"([1-9]\d{0,8})(s|min|h|d)", text)
    if found is None:
        raise UsageError("E_LISTEN", f"{option} {printable(text)}", hint="30s, 30min, 12h or 7d")
    return float(found[1]) * {"s": 1, "min": 60, "h": 3600, "d": 86400}[found[2]]


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


@click.command("add", context_settings=WIDE)
@click.argument("catalog")
@click.argument("name")
@click.option("--users", metavar="FILE", help="The users file; CATALOG's .users by default.")
@click.option("--curator", is_flag=True, help="Let NAME see all budgets and requests on the page.")
def add(catalog: str, name: str, users: str | None, curator: bool) -> int:
    """Let NAME sign in, with a password that is asked for, or read from stdin."""
    return _put(catalog, name, users, new=True, curator=curator)


@click.command("passwd", context_settings=WIDE)
@click.argument("catalog")
@click.argument("name")
@click.option("--users", metavar="FILE", help="The users file; CATALOG's .users by default.")
def passwd(catalog: str, name: str, users: str | None) -> int:
    """Give NAME another password."""
    return _put(catalog, name, users, new=False)


def _put(catalog: str, name: str, users: str | None, new: bool, curator: bool = False) -> int:
    from dpsql.server.users import Users

    known = Users(users_path(catalog, users))
    analysts = read_catalog(catalog).analysts
    is_lost = bool(analysts) and name.casefold() not in analysts
    if is_lost and not curator and name.casefold() not in known.curators():
        what = f"{printable(name)} is no analyst of {catalog}, and could not sign in"
        hint = f"declare [analyst.{printable(name)}] with epsilon = 1.0, or add --curator"
        raise UsageError("E_ANALYST", what, hint=f"{hint}; analysts: {', '.join(analysts)}")
    known.put(name, _read_password(), new, curator)
    where = "may sign in on the page alone, being no analyst" if is_lost else "may sign in"
    tell(f"{name} {where}; {known.path}")
    return 0


def _read_password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    found: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return found


@click.command("remove", context_settings=WIDE)
@click.argument("catalog")
@click.argument("name")
@click.option("--users", metavar="FILE", help="The users file; CATALOG's .users by default.")
def remove(catalog: str, name: str, users: str | None) -> int:
    """Take NAME out; a server ends the sessions of NAME within a second."""
    from dpsql.server.users import Users

    Users(users_path(catalog, users)).remove(name)
    tell(f"{name} may not sign in any more; a server that runs ends open sessions within a second")
    return 0


@click.command("list", context_settings=WIDE)
@click.argument("catalog")
@click.option("--users", metavar="FILE", help="The users file; CATALOG's .users by default.")
def list_users(catalog: str, users: str | None) -> int:
    """List who may sign in."""
    from dpsql.server.users import Users

    for name in sorted(Users(users_path(catalog, users)).all()):
        print(printable(name))
    return 0


USER_ACTS: dict[str, click.Command] = {
    "add": add,
    "passwd": passwd,
    "remove": remove,
    "list": list_users,
}


@click.command("list", context_settings=WIDE)
@click.argument("catalog")
def list_sessions(catalog: str) -> int:
    """List the sessions of the servers of CATALOG that run on this machine."""
    from dpsql.server.operator_socket import ask_servers

    _tell_sessions(ask_servers(Path(catalog), act="list"))
    return 0


@click.command("end", context_settings=WIDE)
@click.argument("catalog")
@click.argument("numbers", metavar="[NUMBER]...", nargs=-1, type=int)
@click.option("--user", metavar="NAME", help="All sessions of NAME.")
def end_sessions(catalog: str, numbers: tuple[int, ...], user: str | None) -> int:
    """End sessions by their numbers or their user; what was charged is stored first."""
    from dpsql.server.operator_socket import ask_servers

    if not numbers and user is None:
        what = "name sessions by number, or --user NAME"
        raise UsageError("E_USAGE", what, hint=f"dpsql sessions list {catalog}")
    gone = ask_servers(Path(catalog), act="end", numbers=numbers, user=user)
    if not gone:
        raise UsageError("E_USAGE", "there is no such session")
    _tell_sessions(gone)
    return 0


def _tell_sessions(found: list[dict[str, Any]]) -> None:
    """Print one line for each session, the oldest first, for people and for ``cut -f``."""
    names = ("number", "user", "address", "since", "state", "idle", "statements", "application")
    print("\t".join(names))
    for each in found:
        print("\t".join(printable(str(each[name])) for name in names))


SESSION_ACTS: dict[str, click.Command] = {"list": list_sessions, "end": end_sessions}
