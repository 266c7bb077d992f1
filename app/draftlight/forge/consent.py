"""Whether draft models may learn from the person's own chats: off until they allow it. The settings file says it."""

from draftlight import paths
from draftlight.errors import UserError
from draftlight.settings import load_settings, save_settings


def may_learn() -> bool:
    """Whether they have allowed it."""
    return load_settings(paths.settings_file()).settings.learn_from_chats


def let_learn(*, allowed: bool) -> None:
    """Note what they have said. Raises UserError."""
    file = paths.settings_file()
    before = load_settings(file).settings
    save_settings(before.changed(learn_from_chats=allowed), file, since=before)


def require_consent(how: str = "Allow it in the window that makes draft models.") -> None:
    """Raise UserError, with `how` to allow it, where the person has not said that chats may be learned from."""
    if not may_learn():
        raise UserError("Draft models learn from your chats only once you have allowed it.", how)
