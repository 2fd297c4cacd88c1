"""A command that writes beneath some folders alone, as in a container with a read-only root.

``python -m tests.support.confined FOLDER... -- COMMAND...`` becomes that command. The kernel keeps
it to the folders, whoever runs it, and whatever it starts (landlock(7), Linux 6.2 or later).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Sequence

CREATE, ADD, RESTRICT = 444, 445, 446
"""Numbers of the system calls, the same on all machines."""
WRITES = 0b0111_1111_1111_0010
"""Rights of ABI 3 but those to execute and to read: to write, truncate, make and remove."""
NO_NEW_PRIVILEGES = 38
_system = ctypes.CDLL(None, use_errno=True)


def is_possible() -> bool:
    """True if the kernel can."""
    return int(_system.syscall(CREATE, None, 0, 1)) >= 3


def confine(folders: Sequence[str]) -> None:
    """Let this process, and all that it starts, write beneath these folders alone.

    Raises: OSError.
    """
    rights = struct.pack("=Q", WRITES)
    ruleset = _checked(_system.syscall(CREATE, rights, len(rights), 0))
    for folder in folders:
        beneath = os.open(folder, os.O_PATH)
        rule = rights + struct.pack("=i", beneath)
        _checked(_system.syscall(ADD, ruleset, 1, rule, 0))
        os.close(beneath)
    _checked(_system.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(_system.syscall(RESTRICT, ruleset, 0))
    os.close(ruleset)


def _checked(found: int) -> int:
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


if __name__ == "__main__":
    end = sys.argv.index("--")
    confine(sys.argv[1:end])
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])
