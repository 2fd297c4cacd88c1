"""Programs that print the figures dpsql claims; run them with ``python -m benchmarks``."""

import sys

if sys.argv[0] == "-m" and {"-h", "--help"} & {*sys.argv[1:]}:
    # here, since a program would be running by the time it could look at its arguments
    from benchmarks.usage import tell

    sys.exit(tell(sys.orig_argv))
