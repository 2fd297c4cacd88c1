"""A server between analysts and the data: PostgreSQL's protocol in front of dpsql.

``Server`` listens; a ``Session`` is one client's, signed in by ``scram`` as one of the ``Users``.
Each statement is an ``Order``, which ``route`` sends to dpsql, to the ``Twin`` or nowhere; what
comes back is a ``Table`` of rows on their way to the client.
"""
