"""What is measured: integer rows, their forecast and their least squares (stages 5, 6, 9)."""
