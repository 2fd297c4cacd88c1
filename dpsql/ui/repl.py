"""The prompt: multi-line SQL up to a semicolon, history, completion, the budget in sight.

prompt_toolkit is imported where a terminal has use for it: it takes 0.15 s of a core.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql import __version__
from dpsql.errors import Error, Interrupted, printable, printable_lines, text_width
from dpsql.files import keep_private, make_folder
from dpsql.records import dataclass
from dpsql.settings.table import SETTINGS
from dpsql.ui.budget import gauge
from dpsql.ui.grid import clip, floor_text
from dpsql.ui.narration import colour_wanted, speaks_unicode, tell, tell_note
from dpsql.ui.session import Quit, Session
from dpsql.ui.streams import is_command
from dpsql.ui.style import screen_width
from dpsql.ui.texts import run_piece

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.lexers import Lexer

WORDS_TO_LEAVE = ("quit", "exit", "quit;", "exit;")
WORDS_FOR_HELP = ("help", "help;", "?")
Reader = Callable[[], str]


def run_prompt(session: Session) -> int:
    """Read and answer until the user leaves; return the exit status."""
    from dpsql.relation.row_view import of_sources  # the connection is open by now

    fancy = os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
    tell(f"dpsql {__version__} on {session.name}. SQL ends with ;  .help lists commands.")
    for note in of_sources(session.connection.catalog.tables.values()):
        tell_note(note)
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
    if text.strip().lower() in WORDS_FOR_HELP:
        text = ".help"
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
    words = (*WORDS_TO_LEAVE, *WORDS_FOR_HELP)
    if not stripped or is_command(text) or stripped.lower() in words:
        return True
    from dpsql.dbapi.connection import split_script

    return not split_script(text)[1].strip()


def prompt_text(session: Session, unicode: bool = True) -> str:
    """Return the prompt: catalog, the epsilon that can still be asked, statements collected."""
    remaining = floor_text(session.connection.askable[0], 3)
    count = session.connection.workload
    block = "" if count is None else f" [{count}]"
    return f"{session.name} {'ε' if unicode else 'eps'} {remaining}{block}> "


@dataclass(frozen=True, slots=True)
class Toolbar:
    """The line below the prompt: what is left, the workload, settings of the next request.

    It is made once for every prompt, since the ledger is read for it, and cut to any width.
    """

    left: Fraction
    total: Fraction
    parts: tuple[str, ...]
    unusual: tuple[str, ...]

    @classmethod
    def of(cls, session: Session) -> Toolbar:
        """Return the toolbar of a session."""
        connection = session.connection
        count = connection.workload
        first = () if count is None else (f"workload: {count} statements",)
        settings = [(name, value) for name, value in connection.settings.items() if value]
        chosen = [f"{name} {value}" for name, value in settings if value != _usual(name)]
        last = f"mode {session.format}"
        parts = (*first, *(f"{name} {value}" for name, value in settings), last)
        return cls(*connection.askable, parts, (*first, *chosen, last))

    def text(self, width: int) -> str:
        """The line in so many cells: what nobody has set is left out first."""
        amount = f"ε {floor_text(self.left)} of {floor_text(self.total)} left"
        drawn = f"{gauge(self.left, self.total)} {amount}"
        for text in (_bar(drawn, self.parts), _bar(drawn, self.unusual)):
            if text_width(text) <= width:
                return text
        parts = list(self.unusual)
        while parts and text_width(_bar(amount, parts)) > width:
            parts.pop()
        return clip(_bar(amount, parts), width)


def _bar(first: str, parts: Iterable[str]) -> str:
    return " " + "  │  ".join([first, *parts])


def _usual(name: str) -> str:
    """The value of a setting that nobody has set, as SHOW prints it."""
    setting = SETTINGS[name]
    return setting.kind.show(SETTINGS[setting.key].default)


def read_plainly(session: Session) -> str:
    """Read one input on a terminal that can only print lines."""
    draft = session.draft.strip()
    if draft:
        session.draft = ""
        print(printable_lines(draft))
        if session.ask("run this? [y/N] ").strip().lower() in ("y", "yes"):
            return draft
    lines = [input(prompt_text(session, speaks_unicode(sys.stdout)))]
    while not is_complete("\n".join(lines)):
        lines.append(input("   ...> "))
    return "\n".join(lines)


def make_reader(session: Session) -> Reader:
    """Return a reader with editing, history, highlighting and completion."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
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
        complete_while_typing=True,
        auto_suggest=AutoSuggestFromHistory() if colour_wanted() else None,  # grey, or not at all
        history=open_history(),
        key_bindings=_make_bindings(),
        multiline=True,
        prompt_continuation=lambda width, number, wrapped: "...> ".rjust(width),
        style=Colours.from_dict(colours) if colour_wanted() else Colours([]),
        include_default_pygments_style=False,
        enable_history_search=False,
        enable_suspend=True,
    )

    def read() -> str:
        draft, session.draft = session.draft, ""
        toolbar = Toolbar.of(session)
        return prompt.prompt(
            [("class:prompt", prompt_text(session))],
            default=draft,
            bottom_toolbar=lambda: toolbar.text(screen_width()),
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
    from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
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

    @bindings.add("enter", filter=has_focus(DEFAULT_BUFFER) & completion_is_selected)
    def take_completion(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @bindings.add("tab", filter=has_focus(DEFAULT_BUFFER))
    def complete(event: KeyPressEvent) -> None:
        """Complete at once: what is offered while typing comes later, and may be old."""
        buffer = event.current_buffer
        state = buffer.complete_state
        if state is not None and len(state.completions) > 1:
            buffer.complete_next()
            return
        asked = CompleteEvent(completion_requested=True)
        found = list(buffer.completer.get_completions(buffer.document, asked))
        if len(found) == 1:
            buffer.apply_completion(found[0])
        elif found:
            buffer.insert_text(get_common_complete_suffix(buffer.document, found))
            buffer.start_completion(select_first=False)

    @bindings.add("c-c", filter=has_focus(DEFAULT_BUFFER))
    def clear(event: KeyPressEvent) -> None:
        event.current_buffer.reset()

    return bindings


def _make_lexer() -> Lexer:
    from prompt_toolkit.lexers import Lexer

    from dpsql.ui.highlight import STYLES, tokens

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

    from dpsql.ui.complete import complete_command, complete_sql
    from dpsql.ui.vocabulary import Vocabulary

    class NameCompleter(Completer):
        """Adapts the candidates to the prompt; the vocabulary is made anew when it has changed."""

        def __init__(self) -> None:
            self._known = session.connection.known
            self._words = Vocabulary.of(self._known)

        def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
            text = document.text_before_cursor
            if session.connection.known is not self._known:
                self._known = session.connection.known
                self._words = Vocabulary.of(self._known)
            found = (
                complete_command(text, session, self._words)
                if is_command(text)
                else complete_sql(text, self._words, document.text_after_cursor)
            )
            for one in found:
                yield Completion(
                    one.text, -one.replaces, printable(one.text), display_meta=one.kind
                )

    return NameCompleter()
