"""Formats of codebooks: one module each, with what it is called and a function that reads it.

A module says ``NAME``, the words for its format, and ``SYNTAX``, the form in which it is written,
one of those of ``read``; its ``read`` is given what was parsed and yields what it says of columns,
as (table, column, :class:`dpsql.catalog.codebook.BookColumn`), nothing where it is another format.
A module that is put here is found.
"""
