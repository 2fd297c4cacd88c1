"""Lexemes, parameters, statements of our own, and what is written of a script."""
