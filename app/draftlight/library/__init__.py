"""Model files on disk: what a header says, which files there are, which draft can serve which target."""
