"""The membrane: what makes dpsql differentially private, and the one door through it.

- ``accounting``: The cost of a release, and what a preset (epsilon, delta) still admits
- ``amounts``: Epsilon and delta as exact fractions, and the integer units that budgets are
  counted in
- ``chain``: The ledger's entries as a hash chain, and the budget state that they add up to
- ``claims``: One ledger per data source: two catalogs over one file must not mean two budgets
- ``curator``: The catalog's presets in the ledger, and the acts of a curator: verify, raise,
  migrate, adopt
- ``discovery``: Public facts that a release of keys is paid for: fixed before it
- ``entropy``: Random bits from the operating system; the only source of randomness on the private
  path
- ``exact``: Exact products of integer rows and private counts, in arithmetic that public facts
  alone choose
- ``filter``: Adaptive runs: the facts that are paid for, and the filter that looks are charged to
- ``find``: A look of the membrane of its own kind: the keys that enough privacy units have
- ``inspect``: Exact figures of a private table for the curator, who has the data: what its views
  leave out
- ``ledger``: The durable budget: debits that are on disk before any noise is drawn, and never
  undone
- ``ledger_file``: The ledger's SQLite file: one exact schema, durable settings, nothing else
  accepted
- ``look``: The membrane's second door: a run that looks several times, within what one receipt
  paid
- ``measure``: The membrane's only door: a plan and a receipt in, noisy integers out
- ``noise``: Exact discrete Laplace and discrete Gaussian samples, many at a time, from random
  bits
- ``opendp_noise``: The second, independent sampler: OpenDP's own measurements, where OpenDP
  certifies them
- ``partitions``: Partition selection by the number of units of a key: exact chances, weights and
  thresholds
- ``receipt``: The proof that a release was paid for: made by a debit, good for one measurement
- ``refusals``: The ways in which a ledger refuses to work
- ``selection``: Choosing among public candidates by private integer scores, with exact samplers
- ``sensitivity``: Sensitivity of the answers to candidates to one row, from their own integer
  rows
- ``spent``: The sums that a budget holds, and what they still admit
- ``status``: Status of a ledger: totals, sums, and the largest requests still admitted
- ``tails``: Exponentials and tails as fractions that are bounds for certain: sixty digits, and a
  pad
- ``truth``: True answers, counted once per set of attributes; nothing of them leaves but under
  noise
"""
