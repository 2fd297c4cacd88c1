"""Rows of one privacy unit: windows, unions, bounds, and SELECTs by unit."""
