"""PEP 249: connections and cursors, and what the surfaces need beside them."""
