"""Where drafts come from: a small model, or the text's own repetitions."""
