"""Relations of rows of one privacy unit, the language in which the vault is asked for rows."""
