"""The one error that is meant for people: a sentence, and what to do about it.

Everything else that is raised is a bug and belongs in the log and the crash report.
"""


class UserError(Exception):
    """Something the person can understand and mend.

    Args:
        sentence: what happened, one plain sentence, naming the file or value concerned.
        remedy: what to do now, one plain sentence; empty where nothing helps.

    """

    def __init__(self, sentence: str, remedy: str = "") -> None:
        """Keep both parts, so that a window can set them apart."""
        super().__init__(sentence, remedy)
        self.sentence = sentence
        self.remedy = remedy

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences added on the way up with add_note(): what else went wrong because of it."""
        return tuple(getattr(self, "__notes__", ()))

    def __str__(self) -> str:
        """Return the sentence and the remedy as one line."""
        return f"{self.sentence} {self.remedy}".strip()
