"""Conditions and expressions on the declared values of columns."""
