"""Choosing the models and how they draft."""
