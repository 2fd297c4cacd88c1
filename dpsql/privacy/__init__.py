"""The membrane: what makes dpsql differentially private, and the three doors through it.

- ``measure``, the first door: a plan and a receipt in, noisy integers out
- ``look``, the second: a run that looks several times, within what one receipt paid
- ``find_keys``, the third: keys that nobody listed, and their noisy counts

Behind them are ``vault``, which alone reads rows, ``vaults``, which opens it, and ``exact_counts``;
before them the ``ledger``, whose ``receipt`` each of them asks for. ``check_figures`` is no door:
exact figures for the curator, who has the data. Who may import which is written in
``.importlinter``.
"""
