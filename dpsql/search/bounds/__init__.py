"""Lower bounds on the error of every strategy."""
