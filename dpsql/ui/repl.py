"""The prompt: multi-line SQL up to a semicolon, history, completion, the budget in sight.

prompt_toolkit is imported where a terminal has use for it: it takes 0.15 s of a core.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql import __version__
from dpsql.errors import Error, Interrupted, text_width
from dpsql.files import keep_private, make_folder
from dpsql.settings import SETTINGS
from dpsql.ui.budget import gauge
from dpsql.ui.commands import run_piece
from dpsql.ui.grid import clip, floor_text
from dpsql.ui.session import Quit, Session
from dpsql.ui.streams import is_command
from dpsql.ui.style import screen_width
from dpsql.ui.tell import colour_wanted, speaks_unicode, tell

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.lexers import Lexer

WIDE_TOOLBAR = 120
"""Cells from which on the toolbar has room for a gauge and for settings that are as usual."""

WORDS_TO_LEAVE = ("quit", "exit", "quit;", "exit;")
Reader = Callable[[], str]


def run_prompt(session: Session) -> int:
    """Read and answer until the user leaves; return the exit status."""
    fancy = os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
    tell(f"dpsql {__version__} on {session.name}. SQL ends with ;  .help lists commands.")
    read = make_reader(session) if fancy else lambda: read_plainly(session)
    while True:
        try:
            text = read()
        except KeyboardInterrupt:
            tell("")
            continue
        except EOFError:
            return 0
        try:
            session.connection.interruptible(partial(answer_input, session, text))
        except Interrupted as stop:
            tell(stop.message)
        except Quit:
            return 0
        except Error as error:
            session.report(error)
            return error.exit_code


def answer_input(session: Session, text: str) -> None:
    """Run one input: a command, or statements one after the other.

    Raises: Quit when asked to leave; Error when ``bail`` is set.
    """
    if text.strip().lower() in WORDS_TO_LEAVE:
        raise Quit
    if not is_command(text):
        session.typed = text
    if is_command(text):
        return run_piece(session, text.strip(), session.run_statement)
    from dpsql.dbapi.connection import split_script

    statements, rest = split_script(text)
    for statement in [*statements, rest]:
        run_piece(session, statement, session.run_statement)
        if session.exit_code:
            break
    session.exit_code = 0
    return None


def is_complete(text: str) -> bool:
    """Tell whether Enter should run the text: a command, nothing, or SQL up to a semicolon."""
    stripped = text.strip()
    if not stripped or is_command(text) or stripped.lower() in WORDS_TO_LEAVE:
        return True
    from dpsql.dbapi.connection import split_script

    return not split_script(text)[1].strip()


def prompt_text(session: Session, unicode: bool = True) -> str:
    """Return the prompt: catalog, the epsilon that can still be asked, statements collected."""
    remaining = floor_text(session.connection.askable[0], 3)
    count = session.connection.workload
    block = "" if count is None else f" [{count}]"
    return f"{session.name} {'ε' if unicode else 'eps'} {remaining}{block}> "


def toolbar_text(session: Session, width: int = 200, unicode: bool = True) -> str:
    """Return the line below: gauge, workload, settings of the next request.

    What does not fit is left out, and first of all what has not been set.
    """
    settings, (left, total) = session.connection.settings, session.connection.askable
    is_short = width < WIDE_TOOLBAR
    amount = f"ε {floor_text(left)} of {floor_text(total)} left"
    parts = [amount if is_short else f"{gauge(left, total)} {amount}"]
    if session.connection.workload is not None:
        parts.append(f"workload: {session.connection.workload} statements")
    parts += [
        f"{name} {value}"
        for name, value in settings.items()
        if value and not (is_short and value == _usual(name))
    ]
    parts.append(f"mode {session.format}")
    bar = "│" if unicode else "|"
    while len(parts) > 1 and text_width(f" {f' {bar} '.join(parts)}") > width:
        parts.pop()
    return clip(f" {f' {bar} '.join(parts)}", width)


def _usual(name: str) -> str:
    """The value of a setting that nobody has set, as SHOW prints it."""
    setting = SETTINGS[name]
    return setting.kind.show(SETTINGS[setting.key].default)


def read_plainly(session: Session) -> str:
    """Read one input on a terminal that can only print lines."""
    draft = session.draft.strip()
    if draft:
        session.draft = ""
        print(draft)
        if session.ask("run this? [y/N] ").strip().lower() in ("y", "yes"):
            return draft
    lines = [input(prompt_text(session, speaks_unicode(sys.stdout)))]
    while not is_complete("\n".join(lines)):
        lines.append(input("   ...> "))
    return "\n".join(lines)


def make_reader(session: Session) -> Reader:
    """Return a reader with editing, history, highlighting and completion."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.styles import Style as Colours

    colours = {
        "sql.keyword": "ansiblue bold",
        "sql.function": "ansicyan",
        "sql.string": "ansigreen",
        "sql.number": "ansimagenta",
        "sql.comment": "ansibrightblack",
        "prompt": "bold",
        "bottom-toolbar": "noreverse ansibrightblack",
    }
    prompt: PromptSession[str] = PromptSession(
        lexer=_make_lexer(),
        completer=_make_completer(session),
        complete_while_typing=False,
        history=open_history(),
        key_bindings=_make_bindings(),
        multiline=True,
        prompt_continuation=lambda width, number, wrapped: "...> ".rjust(width),
        style=Colours.from_dict(colours) if colour_wanted() else Colours([]),
        include_default_pygments_style=False,
        enable_history_search=False,
    )

    def read() -> str:
        draft, session.draft = session.draft, ""
        return prompt.prompt(
            [("class:prompt", prompt_text(session))],
            default=draft,
            bottom_toolbar=lambda: toolbar_text(session, screen_width()),
        )

    return read


def history_path() -> Path:
    """Return where the history lives: under the XDG state folder."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "dpsql" / "history"


def open_history() -> History:
    """Open the persistent history, readable by its owner only; else keep it in memory."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = history_path()
    try:
        make_folder(path.parent)
        keep_private(path)
    except (OSError, ValueError):
        return InMemoryHistory()
    return FileHistory(str(path))


def _make_bindings() -> KeyBindings:
    from prompt_toolkit.enums import DEFAULT_BUFFER
    from prompt_toolkit.filters import completion_is_selected, has_focus, is_searching
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()
    typing = has_focus(DEFAULT_BUFFER) & ~is_searching & ~completion_is_selected

    @bindings.add("enter", filter=typing)
    def run_or_continue(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @bindings.add("c-c", filter=has_focus(DEFAULT_BUFFER))
    def clear(event: KeyPressEvent) -> None:
        event.current_buffer.reset()

    return bindings


def _make_lexer() -> Lexer:
    from prompt_toolkit.lexers import Lexer

    from dpsql.ui.complete import STYLES, tokens

    class SqlLexer(Lexer):
        """Colours SQL; commands of the prompt stay plain."""

        def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
            lines: list[StyleAndTextTuples] = [[]]
            for kind, token in tokens(document.text):
                first, *rest = token.split("\n")
                lines[-1].append((STYLES[kind], first))
                for part in rest:
                    lines.append([(STYLES[kind], part)])
            return lambda number: lines[number] if number < len(lines) else []

    return SqlLexer()


def _make_completer(session: Session) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    from dpsql.ui.complete import Vocabulary, complete_command, complete_sql

    class NameCompleter(Completer):
        """Adapts the candidates to the prompt."""

        def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
            text = document.text_before_cursor
            words = Vocabulary.of(session.connection.known)
            found = (
                complete_command(text, session) if is_command(text) else complete_sql(text, words)
            )
            for one in found:
                yield Completion(one.text, -one.replaces, display_meta=one.kind)

    return NameCompleter()
