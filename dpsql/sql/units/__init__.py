"""Rows of one privacy unit under windows, unions and bounds, and SELECTs by unit."""
