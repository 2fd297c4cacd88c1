"""One sitting with a catalog: a connection, where results go, and how they look.

Results are written to stdout (or a file), everything else is told on stderr.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from dpsql.errors import Error, UsageError, printable
from dpsql.ui.formats import FORMATS, Style, encode, find_format
from dpsql.ui.grid import Grid
from dpsql.ui.numbers import floor_text
from dpsql.ui.progress import Progress

if TYPE_CHECKING:
    from dpsql.dbapi import Connection, Cursor, Result


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
    interactive: bool = False
    exit_code: int = 0
    last: Result | None = None
    sink: BinaryIO | None = None
    sink_name: str | None = None
    ask: Callable[[str], str] = field(default=input)

    def run_text(self, text: str) -> None:
        """Run a whole text: commands on lines of their own, and between them SQL.

        The statements of each stretch of SQL are answered together, as one workload.

        Raises: dpsql.Error at the first failure when ``bail`` is set.
        """
        for piece in split_input(text):
            self.run_piece(piece, self.run_script)

    def run_piece(self, piece: str, run: Callable[[str], None]) -> None:
        """Run one command or stretch of SQL; report its error unless ``bail`` is set."""
        try:
            if is_command(piece):
                from dpsql.ui.commands import run_command

                run_command(self, piece)
            elif piece.strip():
                run(piece)
        except Error as error:
            if self.bail:
                raise
            self.report(error)

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
        if self.confirm and not self._agreed(text):
            tell("not run, nothing charged")
            return
        started = time.perf_counter()
        with Progress(sys.stderr, "planning and measuring"):
            cursor = execute(text)
        elapsed = time.perf_counter() - started
        results = list_results(cursor)
        for i, result in enumerate(results):
            self.show(result, separate=i > 0)
        if results:
            tell_cost(results[0])
        if self.timer:
            tell(f"time: {elapsed:.3f} s")

    def _agreed(self, text: str) -> bool:
        words = text.split(None, 1)
        if not words or words[0].upper() not in ("SELECT", "WITH", "FROM", "RUN"):
            return True
        explanation = self.connection.explain(text)
        if explanation.free:
            return True
        for line in explanation.lines():
            tell(line)
        return self.ask("run this? [y/N] ").strip().lower() in ("y", "yes")

    def show(self, result: Result, separate: bool = False) -> None:
        """Write one result in the chosen format, its message and notes to stderr."""
        if result.message:
            tell(result.message)
        if result.columns:
            self.last = result
            self.write(Grid.of(result), separate)
        for note in result.notes:
            tell(f"note: {printable(note)}")

    def write(self, grid: Grid, separate: bool = False) -> None:
        """Write a grid to the output file, if one is set, or to stdout."""
        binary = FORMATS[self.format].encode is not None
        if self.sink is not None:
            data = encode(grid, self.format, Style(stddev=self.stddev))
            self.sink.write(b"\n" + data if separate and not binary else data)
            self.sink.flush()
            return
        if binary and sys.stdout.isatty():
            raise UsageError(
                "E_FORMAT", f"{self.format} is not for terminals", hint="use .output FILE"
            )
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
    results = []
    more: bool | None = cursor.result is not None
    while more:
        assert cursor.result is not None
        results.append(cursor.result)
        more = cursor.nextset()
    return results


def tell_cost(result: Result) -> None:
    """Tell on stderr what the request cost."""
    cost = result.cost
    if cost is None:
        return
    if cost.free:
        tell("free: answered from what was already released")
        return
    delta = f", δ {floor_text(cost.delta)}" if cost.delta else ""
    tell(f"charged ε {floor_text(cost.epsilon)}{delta} ({printable(cost.noise)})")


def is_command(text: str) -> bool:
    """Tell whether a line is a command of the prompt rather than SQL."""
    return text.lstrip().startswith((".", "\\"))


def split_input(text: str) -> list[str]:
    """Split a text into command lines and stretches of SQL, in order.

    A line is a command when it starts with ``.`` or a backslash where a statement could start.
    """
    from dpsql.dbapi import split_script

    pieces: list[str] = []
    buffer = ""
    for line in text.splitlines(keepends=True):
        if is_command(line) and not (buffer and split_script(buffer)[1].strip()):
            pieces += [buffer, line.strip()]
            buffer = ""
        else:
            buffer += line
    return [piece for piece in [*pieces, buffer] if piece.strip()]


def read_text(path: str) -> str:
    """Read an SQL file, or stdin for ``-``.

    Raises: UsageError when it cannot be read or is not UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} is not UTF-8"
    except (OSError, ValueError) as error:
        problem = (getattr(error, "strerror", None) or str(error)).lower()
    raise UsageError("E_INPUT", f"cannot read {printable(path)}: {problem}")


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


def colour_wanted() -> bool:
    """Tell whether the environment admits colour."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def speaks_unicode(stream: TextIO) -> bool:
    """Tell whether a stream is encoded as UTF-8."""
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def choose_format(name: str | None) -> str:
    """Return the wanted format, or box on a terminal and csv elsewhere.

    Raises: UsageError for an unknown format or a missing package.
    """
    if name is None:
        return "box" if sys.stdout.isatty() else "csv"
    return find_format(name).name


def describe_error(error: Error, stream: TextIO) -> str:
    """Return the text of an error, escaped line by line, its first word red on a terminal."""
    red = stream.isatty() and colour_wanted()
    lines = [printable(line) for line in str(error).split("\n")]
    return ("\x1b[31merror:\x1b[0m " if red else "error: ") + "\n".join(lines)


def tell(text: str) -> None:
    """Write a line of narration to stderr, in ASCII where stderr has nothing better."""
    if not speaks_unicode(sys.stderr):
        text = text.translate({0x3B5: "epsilon", 0x3B4: "delta", 0xB1: "+/-", 0xB7: "-"})
    print(text, file=sys.stderr)
