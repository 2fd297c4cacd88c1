"""``python -m dpsql`` and the ``dpsql`` command."""

from __future__ import annotations

import sys

YOUNG = 200_000
"""Objects that are made before Python looks for cycles: modules and a catalog are fewer, and stay.

Looking through them again and again took a fifteenth of the time to a first answer.
"""

PATIENCE = "20"
"""For 2^20 cycles, .3 ms, a thread of OpenBLAS waits for more work and keeps a core busy with it.

By default it does so for 30 ms after numpy is imported, and after every large product: a tenth of a
second of a first answer's, on a core that others of its threads would use. Products take as long.
"""

INTERRUPTED = 130


def command() -> None:
    """As ``main``, and the process is over once its exit functions have run and all is written.

    Python would take apart every module and object before: a twentieth of the time to a first
    answer. Exit functions that were there before are left out: a process of its own has none.
    """
    import atexit
    import os

    found: list[int] = []

    def end() -> None:
        if found:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # as one that was closed from the start
                    stream.flush()
            os._exit(found[0])

    atexit.register(end)  # before all others, so that it is called last
    try:
        main()
    except SystemExit as ending:
        if isinstance(ending.code, int):
            found.append(ending.code)
        raise


def main() -> None:
    """Run the command line and exit with its documented status.

    A request to terminate unwinds the stack, so that nothing half written stays behind.
    """
    try:
        import gc  # modules that take long would be imported before interrupts are waited for
        import os
        import signal

        _prepare_streams()
        os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", PATIENCE)
        gc.set_threshold(YOUNG)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        from dpsql.ui.cli import run_command_line  # `import dpsql` and `--help` need nothing heavy
    except KeyboardInterrupt:
        print("interrupted: nothing was charged", file=sys.stderr)
        sys.exit(INTERRUPTED)
    sys.exit(run_command_line(sys.argv[1:]))


def _prepare_streams() -> None:
    """Make every stream usable: a closed stdin is empty, no character stops stdout."""
    import io

    if sys.stderr is None:
        sys.exit(2)
    if sys.stdout is None:
        told = "error: stdout is closed [E_OUTPUT]\nhint: >/dev/null where results are not wanted"
        print(told, file=sys.stderr)
        sys.exit(2)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    command()
