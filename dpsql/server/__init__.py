"""A server between analysts and the data: PostgreSQL's protocol in front of dpsql.

A ``Server`` listens; a ``Door`` lets a client in, signed in by ``scram`` as one of the ``Users``; a
``Dialogue`` serves it. Each statement is an ``Errand``, which ``route`` finds and a ``Clerk``
carries out: the ``Asker`` asks dpsql, or the ``Twin`` where no data are asked for. What comes back
is ``Returned``: columns, and rows on their way to the client.
"""
