"""Graphical models of noisy marginals: numpy only, and nothing private.

``fit`` fits a ``model`` to what was measured, on its junction ``tree``; ``sample`` draws rows of
it, and ``predict`` foretells errors. ``mbi_backend`` does the same by the package mbi.
"""
