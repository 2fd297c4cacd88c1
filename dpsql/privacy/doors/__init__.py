"""The doors through the membrane, which take a plan and a receipt and return noisy integers."""
