"""One sitting with a catalog: a connection, where results go, and how they look.

Results are written to stdout (or a file), everything else is told on stderr.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from dpsql.errors import Error, UsageError
from dpsql.ui.formats import FORMATS, Style, encode, find_format
from dpsql.ui.grid import Grid
from dpsql.ui.streams import count_results
from dpsql.ui.tell import (
    Progress,
    colour_wanted,
    describe_error,
    speaks_unicode,
    tell,
    tell_cost,
    tell_note,
)

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection, Cursor, Result


class Quit(Exception):
    """The user asked to leave."""


@dataclass(slots=True)
class Session:
    """The state that the commands of the prompt change."""

    connection: Connection
    name: str
    format: str
    stddev: bool = False
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

    def report(self, error: Error) -> None:
        """Show an error and remember its exit status."""
        self.exit_code = error.exit_code
        tell(describe_error(error, sys.stderr))

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
        if self.sink is None and sys.stdout.isatty():
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
            epsilon = self.connection.settings["epsilon"]
            tell(f"{collected} statements as one workload, epsilon {epsilon}")
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

    def write(self, grid: Grid, separate: bool = False) -> None:
        """Write a grid to the output file, if one is set, or to stdout."""
        binary = FORMATS[self.format].encode is not None
        self.binary_results += binary
        if self.sink is not None:
            data = encode(grid, self.format, Style(stddev=self.stddev))
            self.sink.write(b"\n" + data if separate and not binary else data)
            self.sink.flush()
            return
        data = encode(grid, self.format, stdout_style(self.stddev))
        if binary:
            sys.stdout.buffer.write(data)
        else:
            sys.stdout.write(("\n" if separate and self.format != "jsonl" else "") + data.decode())
        sys.stdout.flush()

    def close(self) -> None:
        """Close the output file and the connection."""
        if self.sink is not None:
            self.sink.close()
            self.sink = self.sink_name = None
        self.connection.close()


def list_results(cursor: Cursor) -> list[Result]:
    """Walk the result sets of a cursor."""
    results = [cursor.result]
    while cursor.nextset():
        results.append(cursor.result)
    return results


def stdout_style(stddev: bool) -> Style:
    """Return what stdout can show: colour only on a terminal and without ``NO_COLOR``."""
    terminal = sys.stdout.isatty()
    return Style(
        stddev=stddev,
        width=shutil.get_terminal_size().columns if terminal else None,
        colour=terminal and colour_wanted(),
        unicode=speaks_unicode(sys.stdout),
        terminal=terminal,
    )


def choose_format(name: str | None) -> str:
    """Return the wanted format, or box on a terminal and csv elsewhere.

    Raises: UsageError for an unknown format or a missing package.
    """
    if name is None:
        return "box" if sys.stdout.isatty() else "csv"
    return find_format(name).name
