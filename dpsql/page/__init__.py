"""The page: what a browser shows of a server, to analysts and to the curator.

``open_page`` serves an application over HTTP, in a thread of its own. A ``SiteGuard`` stands around
it; whoever passes the ``SignIn`` gets a ``BrowserSession``, whose SQL runs in a thread of its own
under the eyes of a ``PageWorkers``; ``json_shapes`` are what is sent.
"""
