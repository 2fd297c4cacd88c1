"""The membrane: what makes dpsql differentially private, and the one door through it."""
