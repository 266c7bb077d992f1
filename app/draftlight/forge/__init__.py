"""Makes a draft model for a target that has none. Only the child process, `worker.py` and what it uses, knows torch."""
