"""Starts the forge's own process, passes on what it reports, and tells it to pause, go on or stop. Knows no torch."""
