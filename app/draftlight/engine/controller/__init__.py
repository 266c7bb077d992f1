"""How many tokens to draft next, and from which source. Knows offers, rounds and their costs, not models."""
