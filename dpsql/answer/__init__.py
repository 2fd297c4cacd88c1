"""From noisy numbers to results: the outer shell, stored releases, models (stages 9 and 10).

- ``accuracy``: Comparison of errors: whether a release answers as accurately as a new measurement
- ``assemble``: Estimates of all parts -> one result per statement, each number with its standard
  error
- ``clipped``: Released clipped sums: what is stored of them, and what is said about them
- ``codec``: Releases and looks as bytes and back: integers, strategies, scales, noisy answers
- ``covariance``: Standard errors of what is computed from several noisy numbers of one release
- ``dataframes``: Results as data frames: pandas, polars, Arrow and numpy
- ``digits``: Numbers as people read them: with the digits that their standard errors leave
- ``display``: Results and forecasts as a notebook or Python's prompt shows them
- ``graphical``: Answers of a release from a graphical model that is fitted to what was measured
  (Private-PGM)
- ``implied``: Releases that determine a request, decided from public structure alone
- ``modelled``: Answers and rows of a model instead of an estimate: biased, consistent, free
- ``numbers``: Rows, the standard error of every number, and the receipt that paid for them
- ``plots``: Pictures of results: every noisy number with its 95 % interval
- ``reprocess``: Answers as the ``reconstruct`` option wants them: what counts can be, by free
  post-processing
- ``result``: A result: numbers as data frames, as text and as pictures
- ``shell``: Run the outer shell of a statement over its noisy cells: pure post-processing
- ``store``: The store of what was published, for later processes, which answer from there, free
- ``synthetics``: Synthetic tables: released models; what is stored of them, and what is said
  about them
"""
