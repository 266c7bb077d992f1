"""Draftlight: local chat with visible speculative decoding."""

__version__ = "0.1.0"
