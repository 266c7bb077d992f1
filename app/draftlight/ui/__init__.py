"""The window. The only importer of PySide6; reaches models through a ChatService, never through llama.cpp."""
