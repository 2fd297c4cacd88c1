"""A server between analysts and the data: PostgreSQL's protocol in front of dpsql.

A ``Server`` listens; an ``Admission`` lets a client in, signed in by ``scram`` as one of the
``Users``; a ``ClientConnection`` serves it. Each statement is a ``SessionCommand``, which ``route``
finds and a ``SessionWorker`` carries out: the ``StatementRunner`` asks dpsql, or the ``Twin`` where
no data are asked for. What comes back is ``ResultStream``: columns, and rows on their way to the
client.
"""
