"""The durable ledger, its hash chain, and the accounting of what a release costs."""
