"""Implicit matrices: rows of questions over cells that are never written out; numpy only.

``operator`` is the list of questions that every one of them answers; ``kron`` and ``marginals`` are
products over several attributes, ``blocks``, ``ranges``, ``levels`` and ``orbits`` rows over one.
"""
