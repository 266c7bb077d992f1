"""What the checks found out, beside passing: shown once at the end of a run, whatever pytest captures."""

_sentences: list[str] = []


def note(sentence: str) -> None:
    """Have a sentence shown at the end."""
    _sentences.append(sentence)


def noted() -> tuple[str, ...]:
    """All sentences so far."""
    return tuple(_sentences)
