"""Data-dependent mechanisms: they choose what to measure, and look only through a handle."""
