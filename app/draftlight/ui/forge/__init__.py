"""Making a draft model: what can be gained here, the run with its curves, and what came of it."""
