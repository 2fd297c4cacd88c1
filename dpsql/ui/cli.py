"""The command line: options in, exit status out.

Exit status: 0 ok, 1 a query was refused or failed, 2 usage or catalog, 3 data or ledger
unavailable, 5 budget refused, 130 interrupted. What a command needs is imported by it, so that
``--help`` does not wait for the engine.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql import __version__
from dpsql.errors import Error, Interrupted, UsageError, nearest, printable
from dpsql.ui.connect import (
    WIDE,
    blaming_options,
    open_connection,
    refuse_draft,
    scratch_option,
    sit,
    with_settings,
)
from dpsql.ui.narration import tell, tell_error, tell_note

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection
    from dpsql.ui.run import RunOptions
    from dpsql.ui.session import Session

OK, USAGE, INTERRUPTED = 0, 2, 130

EPILOG = """\b
Commands:
  dpsql run FILE.sql --catalog C --epsilon E   a whole file as one workload, one charge
  dpsql init DATA...                           draft a catalog for files of data
  dpsql check CATALOG [--dp --epsilon E]       which rows never count, for the curator
  dpsql ledger CATALOG                         show the budget and what was charged
  dpsql ledger verify|raise|migrate|adopt CATALOG   acts of the curator
  dpsql ledger backup CATALOG FOLDER | recover CATALOG   before and after a disk is lost
  dpsql upgrade --check CATALOG                what this version would charge again
  dpsql serve CATALOG...                       a server that speaks PostgreSQL's protocol
  dpsql user add|passwd|remove|list CATALOG NAME    who may sign in there
  dpsql sessions list|end CATALOG [NUMBER]...  who is there now
\b
Exit status: 0 ok, 1 query refused or failed, 2 usage or catalog,
3 data, ledger or a defect of dpsql, 5 budget refused, 130 interrupted.
"""


class OrderedCommand(click.Command):
    """A command that remembers in which order -c and -f were given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse twice: once for the order, once for the values."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            ctx.meta["dpsql.order"] = [param.name for param in order]
        return super().parse_args(ctx, args)


@click.command(cls=OrderedCommand, epilog=EPILOG, context_settings=WIDE)
@click.argument("catalog", required=False)
@click.option("-c", "--command", "commands", metavar="SQL", multiple=True, help="Run SQL.")
@click.option(
    "-f", "--file", "scripts", metavar="FILE", multiple=True, help="Run a file; - is stdin."
)
@click.option("-init", "--init", "init", metavar="FILE", help="Run a file before anything else.")
@with_settings(whole=False)
@scratch_option
@click.option("--format", "--mode", "format_", metavar="FORMAT", help="How results are written.")
@click.option("--stddev", is_flag=True, help="Add error columns to csv, tsv, json and files.")
@click.option(
    "--formulas",
    is_flag=True,
    help="Leave text as it is that begins with = + - @ or is not seen.",
)
@click.version_option(__version__, message="dpsql %(version)s")
@click.pass_context
def query(
    ctx: click.Context,
    /,
    catalog: str | None,
    commands: tuple[str, ...],
    scripts: tuple[str, ...],
    init: str | None,
    format_: str | None,
    stddev: bool,
    formulas: bool,
    scratch: bool,
    **options: str | None,
) -> int:
    """Differentially private SQL over the tables of CATALOG.

    Without -c or -f, SQL is read from stdin, or typed at a prompt on a terminal. The statements
    of one -c, file or stdin are answered together, for one epsilon.
    """
    if catalog is None:
        raise click.UsageError("name a catalog, or see dpsql --help", ctx)
    from dpsql.ui.session import Session, choose_format
    from dpsql.ui.streams import read_text

    chosen = choose_format(format_)
    texts = []
    remaining = {"commands": list(commands), "scripts": list(scripts)}
    for name in ctx.meta["dpsql.order"]:
        if remaining.get(name):
            value = remaining[name].pop(0)
            is_file = name != "commands"
            source = Path(value).name if is_file and value != "-" else ""
            texts.append((read_text(value) if is_file else value, source))
    if not texts and not sys.stdin.isatty():
        texts.append((read_text("-"), ""))
    first = None if init is None else read_text(init)
    connection = open_connection(catalog, options, scratch)
    name = f"{Path(catalog).stem}{' (scratch)' * scratch}"
    session = Session(connection, name, chosen, stddev=stddev, formulas=formulas, scratch=scratch)
    return sit(connection, lambda: _run_texts(session, first, texts), session.close)


def _run_texts(session: Session, first: str | None, texts: list[tuple[str, str]]) -> int:
    from dpsql.ui.session import Quit
    from dpsql.ui.texts import run_text

    try:
        if first is not None:
            run_text(session, first)
        if not texts:
            return _run_prompt(session)
        for text, source in texts:
            run_text(session, text, source)
    except Quit:
        pass
    return session.exit_code


def _run_prompt(session: Session) -> int:
    from dpsql.ui.repl import run_prompt

    session.bail = False
    return run_prompt(session)


@click.command(context_settings=WIDE)
@click.argument("file")
@click.option("--catalog", metavar="CATALOG", required=True, help="The catalog.")
@with_settings(whole=True)
@scratch_option
@click.option("--out", metavar="DIR", help="Write one file per statement and a summary here.")
@click.option("--force", is_flag=True, help="Replace existing output.")
@click.option("--dry-run", is_flag=True, help="Stop at the forecast; nothing is charged.")
@click.option(
    "--format", "--mode", "format_", metavar="FORMAT", help="csv in files, else as dpsql."
)
@click.option(
    "--stddev/--no-stddev", default=None, help="Error columns in csv, tsv, json; default in files."
)
@click.option(
    "--formulas",
    is_flag=True,
    help="Leave text as it is that begins with = + - @ or is not seen.",
)
@click.option("--max-stddev", metavar="S", help="Least epsilon at which no error is larger.")
@click.option("--within", metavar="PART", help="The same beside public row counts, as 5%.")
@click.option("--report", metavar="HTML", help="Write one self-contained page.")
def run(
    file: str,
    catalog: str,
    out: str | None,
    force: bool,
    dry_run: bool,
    format_: str | None,
    stddev: bool | None,
    formulas: bool,
    max_stddev: str | None,
    within: str | None,
    report: str | None,
    scratch: bool,
    **options: str | None,
) -> int:
    """Answer all statements of FILE as one workload with one charge."""
    from dpsql.ui.run import RunOptions

    order = RunOptions(
        file=file,
        out=None if out is None else Path(out),
        report=None if report is None else Path(report),
        format=format_,
        stddev=stddev,
        formulas=formulas,
        force=force,
        dry_run=dry_run,
        given=frozenset(name for name, text in options.items() if text is not None),
    )
    if out is not None or report is not None:
        refuse_draft(scratch, force or dry_run)
    connection = open_connection(catalog, options, scratch)
    with blaming_options():
        demanded = (max_stddev, within)
        sit(connection, lambda: _run_demanding(connection, demanded, order), connection.close)
    return OK


@click.command(context_settings=WIDE)
@click.argument("data", nargs=-1, required=True)
@click.option("-o", "--output", metavar="CATALOG", help="Write here instead of to stdout.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option(
    "--with", "given", metavar="KEY=VALUE", multiple=True, help="How a server is reached."
)
@click.option("--blind", is_flag=True, help="Look at no value of a file of text.")
@click.option(
    "--codebook", metavar="FILE", help="What the documentation says: REDCap, DDI, dbt, SQL, ..."
)
def init(
    data: tuple[str, ...],
    output: str | None,
    force: bool,
    given: tuple[str, ...],
    blind: bool,
    codebook: str | None,
) -> int:
    """Draft a catalog for DATA from column names and types.

    DATA are Parquet, CSV, TSV and DuckDB files, folders of such files, or tables of a server:
    postgresql:public.visits --with dsn_env=CLINIC_DSN. All tables of a DuckDB file are drafted. Of
    files of text the first lines are looked at, for how they are written and the types of their
    values, never for domains or bounds.
    """
    from dpsql.dbapi.drafting import draft_catalog

    options = {key: value for key, _, value in (each.partition("=") for each in given)}
    drafting = partial(draft_catalog, *data, blind=blind, codebook=codebook, **options)
    if output in (None, "-"):
        print(drafting(), end="")
        return OK
    from dpsql.catalog.draft import COUNTED, SEEN
    from dpsql.ui.streams import OutputFile

    path = Path(output)
    with OutputFile(path, force) as target:
        drafted = drafting(folder=path.parent)
        target.commit(drafted.encode())
    for line in drafted.split("\n"):
        if line.startswith(SEEN):
            tell(line.removeprefix("# "))
    tell(
        f"wrote {output}; decide whom it protects (privacy_unit), and declare domains and bounds "
        "from public knowledge, never from the data"
    )
    left = [line for line in drafted.split("\n") if line.endswith(COUNTED)]
    for line in dict.fromkeys(left):
        tell_note(f"{line[2].lower()}{line[3:].removesuffix(COUNTED)}")
    return OK


def _run_demanding(
    connection: Connection, demanded: tuple[str | None, str | None], order: RunOptions
) -> None:
    from dpsql.dbapi.run_options import demand
    from dpsql.ui.run import run_batch

    demand(connection.engine, *demanded)
    run_batch(connection, order)


def _check() -> click.Command:
    from dpsql.ui.check import check

    return check


def _ledger() -> click.Command:
    from dpsql.ui.budget import show

    return show


def _upgrade() -> click.Command:
    from dpsql.ui.budget import upgrade

    return upgrade


def _serve() -> click.Command:
    from dpsql.ui.serve import serve

    return serve


SUBCOMMANDS: dict[str, Callable[[], click.Command]] = {
    "run": lambda: run,
    "init": lambda: init,
    "check": _check,
    "ledger": _ledger,
    "upgrade": _upgrade,
    "serve": _serve,
}
"""The commands beside ``query``, each imported when it is called."""


def choose_command(arguments: list[str]) -> tuple[click.Command, str, list[str]]:
    """Return the command that a command line means, its name, and the arguments left for it.

    Raises: UsageError (E_USAGE) for a word that is neither a command nor a file.
    """
    first, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    acts = _acts_of(first)
    if rest and rest[0] in acts:
        return acts[rest[0]], f"dpsql {first} {rest[0]}", rest[1:]
    if acts:
        _refuse_misspelt(rest, "act", acts)
    if (
        first in ("user", "sessions")
        and not Path(first).exists()
        and not {"-h", "--help"} & set(rest)
    ):
        raise UsageError("E_USAGE", "name an act", hint=f"acts: {', '.join(acts)}")
    if first in SUBCOMMANDS:
        return SUBCOMMANDS[first](), f"dpsql {first}", rest
    _refuse_misspelt(arguments, "command", [*SUBCOMMANDS, "user", "sessions"])
    return query, "dpsql", arguments


def _acts_of(command: str) -> Mapping[str, click.Command]:
    """The acts of a command that has some."""
    if command == "ledger":
        from dpsql.ui.budget import ACTS

        return ACTS
    if command == "user":
        from dpsql.ui.serve import USER_ACTS

        return USER_ACTS
    if command == "sessions":
        from dpsql.ui.serve import SESSION_ACTS

        return SESSION_ACTS
    return {}


def _refuse_misspelt(words: list[str], kind: str, known: Iterable[str]) -> None:
    """Refuse a first word that could be a command, but is neither one nor a catalog."""
    word = words[0] if words else ""
    if not re.fullmatch(r"\w+", word) or Path(word).exists() or {"-h", "--help"} & set(words):
        return
    near = nearest(word, known)
    if near is None and Path(f"{word}.toml").is_file():
        near = f"{word}.toml"
    hint = f"did you mean {near}?" if near else f"{kind}s: {', '.join(known)}"
    raise UsageError("E_USAGE", f"there is no {kind} or catalog {word!r}", hint=hint)


def run_command_line(arguments: list[str]) -> int:
    """Run one command line and return its exit status."""
    try:
        command, name, rest = choose_command(arguments)
        status = command.main(
            args=rest,
            prog_name=name,
            standalone_mode=False,
        )
        sys.stdout.flush()
        return int(status or OK)
    except click.ClickException as error:
        return _report_usage(error)
    except Error as error:
        return _report_error(error)
    except (KeyboardInterrupt, click.Abort) as stop:
        print(_describe_interrupt(stop.__cause__ or stop), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _close_stdout(OK)
    except OSError as error:
        _report_error(_unwritten(error))
        return _close_stdout(USAGE)
    except Exception as error:
        from dpsql.engine.defects import unexpected

        return _report_error(unexpected(error))


def _describe_interrupt(stop: BaseException) -> str:
    if isinstance(stop, Interrupted):
        return stop.message
    before = "dpsql.dbapi.connection" not in sys.modules  # nothing can have been charged yet
    return "interrupted: nothing was charged" if before else "interrupted"


def _unwritten(error: OSError) -> UsageError:
    """Return the error where stdout takes no more: answers paid for are stored by then."""
    from dpsql.ui.streams import PAID  # few outputs cannot be written

    what = f"cannot write the output: {(error.strerror or 'it failed').lower()}"
    asked = "dpsql.dbapi.connection" in sys.modules
    hint = PAID if asked else None
    return UsageError("E_OUTPUT", what, hint=hint)


def _report_error(error: Error) -> int:
    tell_error(error)
    return error.exit_code


def _report_usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    if context is not None:
        print(context.get_usage(), file=sys.stderr)
    told = printable(error.format_message()).rstrip(".")
    print(f"error: {told} [E_USAGE]", file=sys.stderr)
    return error.exit_code


def _close_stdout(status: int) -> int:
    """Give stdout a harmless target, so that its final flush cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
