"""Chats on disk. The only room that knows SQLite; it knows no model and no event, only text and numbers."""
