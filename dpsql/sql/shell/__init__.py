"""SQL over answers and public rows, with standard errors."""
