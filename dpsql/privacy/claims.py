"""One ledger per data source: two catalogs over one file must not mean two budgets.

Beside the anchors lies one small file per source, named by its real path, that says which ledger
its rows are charged to. Copies of a file are other sources; that is the curator's to avoid.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.privacy.anchor import anchor_path
from dpsql.privacy.durable import exclusive, replace_file


def claim_sources(folder: Path, sources: Iterable[str], ledger: Path, ledger_id: str) -> None:
    """Note that sources are charged to a ledger, unless they are charged to another one already.

    A claim lapses when both its ledger and the ledger's anchor are gone.
    Raises: LedgerError E_LEDGER_MISMATCH, E_LEDGER_IO.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with exclusive(folder / "sources.lock"):
            for source in sources:
                _claim(folder, os.path.realpath(source), ledger, ledger_id)
    except OSError:
        raise LedgerError(
            "E_LEDGER_IO", "it cannot be noted which ledger the data are charged to"
        ) from None


def _claim(folder: Path, source: str, ledger: Path, ledger_id: str) -> None:
    digest = hashlib.sha256(os.fsencode(source)).hexdigest()
    note = folder / f"{digest[:32]}.source"
    owner, owner_id = _read(note)
    if (owner, owner_id) == (str(ledger), ledger_id):
        return
    if owner_id not in ("", ledger_id) and _is_alive(folder, Path(owner)):
        raise LedgerError(
            "E_LEDGER_MISMATCH",
            f"the data {os.path.basename(source)} are charged to the ledger of another catalog",
            hint=f"declare the table in that catalog (its ledger is {owner}), or use that one",
        )
    content = {"ledger": str(ledger), "ledger_id": ledger_id}
    replace_file(note, (json.dumps(content) + "\n").encode())


def _read(note: Path) -> tuple[str, str]:
    try:
        found = json.loads(note.read_bytes())
        return str(found["ledger"]), str(found["ledger_id"])
    except FileNotFoundError:
        return "", ""
    except (ValueError, KeyError, TypeError):
        raise LedgerError(
            "E_LEDGER_TAMPERED",
            f"the note {note.name} beside the ledger's anchor cannot be read",
            hint="restore it, or remove it if no other catalog uses these data",
        ) from None


def _is_alive(folder: Path, ledger: Path) -> bool:
    return ledger.exists() or anchor_path(folder, ledger).exists()
