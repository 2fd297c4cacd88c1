"""One sitting with a catalog: a connection, where results go, and how they look.

Results are written to stdout (or a file), everything else is told on stderr.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from dpsql.errors import Error, UsageError, printable
from dpsql.records import dataclass, field, replace
from dpsql.ui.formats import FORMATS, encode, encoded, find_format
from dpsql.ui.grid import Grid
from dpsql.ui.narration import Progress, tell, tell_cost, tell_error, tell_note
from dpsql.ui.pager import needs_pager, show_paged
from dpsql.ui.streams import OutputFile, count_results
from dpsql.ui.style import Style, stdout_style

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection, Cursor, Result


MAX_ROWS = 40
"""Rows of a result that a terminal shows, unless .maxrows says otherwise."""


class Quit(Exception):
    """The user asked to leave."""


@dataclass(slots=True)
class Session:
    """The state that the commands of the prompt change.

    ``once`` is the file of the next result alone, and ``held`` what goes there; ``shown`` is what
    was written last, ``typed`` the statement that was run last, ``draft`` what the prompt begins
    with next.
    """

    connection: Connection
    name: str
    format: str
    stddev: bool = False
    formulas: bool = False
    timer: bool = False
    bail: bool = True
    confirm: bool = False
    exit_code: int = 0
    last: Result | None = None
    sink: BinaryIO | None = None
    sink_name: str | None = None
    ask: Callable[[str], str] = field(default=input)
    depth: int = 0
    binary_results: int = 0
    told: set[str] = field(default_factory=set)
    max_rows: int | None = MAX_ROWS
    max_width: int | None = None
    pager: str | None = None
    once: OutputFile | None = None
    held: list[bytes] = field(default_factory=list)
    shown: Grid | None = None
    typed: str = ""
    draft: str = ""
    scratch: bool = False

    def report(self, error: Error) -> None:
        """Show an error and remember its exit status."""
        self.exit_code = error.exit_code
        tell_error(error)

    def run_script(self, text: str) -> None:
        """Answer all statements of a text as one workload."""
        self._run(text, self.connection.executescript)

    def run_statement(self, text: str) -> None:
        """Answer one statement."""
        self._run(text, self.connection.execute)

    def _run(self, text: str, execute: Callable[[str], Cursor]) -> None:
        self._check_binary(text)
        if self.confirm and not self._agreed(text):
            tell("not run, nothing charged")
            return
        started = time.perf_counter()
        with Progress(sys.stderr, "planning and measuring") as progress:
            self.connection.report = progress.say
            cursor = execute(text)
        elapsed = time.perf_counter() - started
        results = list_results(cursor)
        for i, result in enumerate(results):
            self.show(result, separate=i > 0)
        for note in self._new_notes(results):
            tell_note(note)
        tell_cost(results)
        if self.timer:
            tell(f"time: {elapsed:.3f} s")

    def _new_notes(self, results: list[Result]) -> list[str]:
        """The notes of some results; those that stand are told once in a session."""
        standing = {note for result in results for note in result.standing}
        notes = dict.fromkeys(note for result in results for note in result.notes)
        found = [note for note in notes if note not in standing & self.told]
        self.told |= standing
        return found

    def _check_binary(self, text: str) -> None:
        """Refuse, before any charge, what would spoil a binary stream.

        Raises: UsageError for a terminal, and for a second result in one file or stream.
        """
        if FORMATS[self.format].encode is None:
            return
        if self.sink is None and self.once is None and sys.stdout.isatty():
            raise UsageError(
                "E_FORMAT", f"{self.format} is not for terminals", hint="use .output FILE"
            )
        asked = count_results(text, self.connection.workload)
        if asked and asked + self.binary_results > 1:
            raise UsageError(
                "E_FORMAT",
                f"one {self.format} file holds one result",
                hint="dpsql run --out DIR writes one file per statement",
            )

    def _agreed(self, text: str) -> bool:
        """Ask before a charge, after showing what is known about it."""
        word = (text.split() or [""])[0].strip(";(").upper()
        collected = self.connection.workload
        if word == "RUN" and collected:
            for line in self.connection.explain(text).lines():
                tell(line)
        elif word == "CREATE" or (
            word in ("SELECT", "WITH", "FROM", "VALUES") and collected is None
        ):
            explanation = self.connection.explain(text)
            if explanation.free:
                return True
            for line in explanation.lines():
                tell(line)
        else:
            return True
        return self.ask("run this? [y/N] ").strip().lower() in ("y", "yes")

    def show(self, result: Result, separate: bool = False) -> None:
        """Write one result in the chosen format, its message to stderr."""
        if result.message:
            tell(result.message)
        if result.columns:
            self.last = result if result.kind == "answer" else self.last
            self.write(Grid.of(result), separate)

    def write(self, grid: Grid, separate: bool = False, whole: bool = False) -> None:
        """Write a grid to the output file, if one is set, or to stdout.

        A terminal shows what fits.

        Args:
            grid: kept as the one that is shown, for charts.
            separate: True to leave a blank line before it, where the format is for people.
            whole: True to show all rows and columns on a terminal, too.

        Raises: UsageError (E_OUTPUT) when a file cannot be written.
        """
        self.shown = grid
        binary = FORMATS[self.format].encode is not None
        blank = "\n" if separate and not binary and self.format != "jsonl" else ""
        if self.once is not None or self.sink is not None:
            for part in itertools.chain(
                [blank.encode()],
                encoded(grid, self.format, Style(self.stddev, formulas=self.formulas)),
            ):
                self._write_file(part)
            self.binary_results += binary and self.once is None
            return
        self.binary_results += binary
        if binary:
            sys.stdout.buffer.write(
                encode(grid, self.format, stdout_style(self.stddev, formulas=self.formulas))
            )
        elif not (self.pager and sys.stdout.isatty() and self._page(grid)):
            limits = (None, None) if whole else (self.max_rows, self.max_width)
            style = stdout_style(self.stddev, *limits, formulas=self.formulas)
            style = replace(style, width=None) if whole else style
            sys.stdout.write(blank)
            for part in encoded(grid, self.format, style):
                sys.stdout.write(part.decode())
        sys.stdout.flush()

    def _write_file(self, data: bytes) -> None:
        """Write to the file of the next result, or to that of all results."""
        if self.once is not None:
            self.held.append(data)
            return
        assert self.sink is not None
        try:
            self.sink.write(data)
            self.sink.flush()
        except OSError as error:
            problem = (error.strerror or type(error).__name__).lower()
            what = f"cannot write {printable(self.sink_name or '')}: {problem}"
            self.close_sink()
            hint = "what was asked is paid for: asking again is free"
            raise UsageError("E_OUTPUT", what, hint=hint) from None

    def _page(self, grid: Grid) -> bool:
        """Show all of a grid in the pager; whether that was needed, and worked."""
        assert self.pager is not None
        style = replace(stdout_style(self.stddev, formulas=self.formulas), width=None)
        text = encode(grid, self.format, style).decode()
        if not needs_pager(text):
            return False
        try:
            show_paged(text, self.pager)
        except UsageError as error:
            self.report(error)
            self.pager = None
            return False
        return True

    def end_once(self) -> None:
        """Give the file of one result what was held for it, if anything was.

        Raises: UsageError (E_OUTPUT).
        """
        if self.once is not None and self.held:
            target, data = self.once, b"".join(self.held)
            self.once, self.held = None, []
            with target:
                target.commit(data)
            tell(f"written to {printable(str(target.path))}")

    def drop_once(self) -> None:
        """Let go of the file of one result."""
        if self.once is not None:
            self.once.discard()
        self.once, self.held = None, []

    def close(self) -> None:
        """Close the output file and the connection."""
        self.drop_once()
        self.close_sink()
        self.connection.close()

    def close_sink(self) -> None:
        """Close the output file: results go to the screen again."""
        if self.sink is not None:
            with contextlib.suppress(OSError):  # what could not be written was told
                self.sink.close()
            self.sink = self.sink_name = None


def list_results(cursor: Cursor) -> list[Result]:
    """Walk the result sets of a cursor."""
    results = [cursor.result]
    while cursor.nextset():
        results.append(cursor.result)
    return results


def write_grid(grid: Grid, name: str, style: Style | None = None) -> None:
    """Write a grid to stdout in a format; without a style all its rows, in a terminal's width.

    Args:
        grid: one result.
        name: of a format, such as csv.
        style: None for all rows, in the width of a terminal.
    """
    style = stdout_style(False) if style is None else style
    for part in encoded(grid, name, style):
        if FORMATS[name].encode is not None:
            sys.stdout.buffer.write(part)
        else:
            sys.stdout.write(part.decode())
    sys.stdout.flush()


def choose_format(name: str | None) -> str:
    """Return the wanted format, or box on a terminal and csv elsewhere.

    Raises: UsageError for an unknown format or a missing package.
    """
    if name is None:
        return "box" if sys.stdout.isatty() else "csv"
    return find_format(name).name
