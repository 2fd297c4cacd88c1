"""Settings: their table, the kinds of their values, and what is decided by the machine."""
