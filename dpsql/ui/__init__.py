"""The surfaces: the command line and the prompt. They reach ``dpsql.dbapi``, never the rows.

``cli`` reads a command line, ``connect`` opens what it names; ``run``, ``check`` and ``budget`` are
its commands, ``repl`` is the prompt, where ``complete`` knows the words.

Its nouns: a *session* is one sitting with a catalog, a *command* what starts with a dot, a *grid* a
result as people see it, a *format* a way to write a grid, a *style* what the target can show, a
*bar* one number with its whisker, a *batch* a file that was answered as one workload, a *report*
what is written about it.
"""
