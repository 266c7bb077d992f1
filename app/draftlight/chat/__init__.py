"""The use case: a message goes in, an answer comes out token by token, and both are on disk."""
