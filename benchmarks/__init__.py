"""Programs that print the figures dpsql claims; run them with ``python -m benchmarks``."""
