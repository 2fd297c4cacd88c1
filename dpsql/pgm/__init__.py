"""Graphical models of noisy marginals: numpy only, and nothing private."""
