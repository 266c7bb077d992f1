"""The terminal front end: chat, generate, probe and models, over the same events as the window.

It knows neither llama.cpp nor Qt: app.py hands it what it needs as `Parts`.
"""
