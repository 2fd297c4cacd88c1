"""Data-dependent mechanisms: they choose what to measure, and look only through a handle.

``choose`` picks one from public facts, ``task`` runs it through a handle: ``mwem``, ``rap``,
``whole_marginals`` or ``fixed``. ``thresholds`` and ``batches`` choose where sums are clipped.
"""
