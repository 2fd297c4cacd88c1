"""Every option once, with its name, values, default and who takes it."""
