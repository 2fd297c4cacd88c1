"""Cells: conditions and expressions on the declared values of columns."""
