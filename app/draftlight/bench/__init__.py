"""Speed-up, honestly: several ways to draft, side by side on the same prompts. Knows no llama.cpp and no screen."""
