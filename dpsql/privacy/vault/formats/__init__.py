"""Formats of files that are read as batches of Arrow, one module for each library that reads them.

A format adds what :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows` says. What its values
mean is decided there, once for all of them.
"""
