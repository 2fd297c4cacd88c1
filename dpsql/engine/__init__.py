"""The ten stages of a request, in order, and the jobs that take another way."""
