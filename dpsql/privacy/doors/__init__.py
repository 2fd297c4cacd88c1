"""The doors through the membrane: a plan and a receipt in, noisy integers out."""
