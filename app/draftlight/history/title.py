"""A conversation's title, made from its first message."""

import unicodedata

MAX_TITLE = 60
_ZERO_WIDTH_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)


def title_of(text: str) -> str:
    """Return the first line that says something, at most MAX_TITLE characters, cut between words if it can be.

    Never cuts inside an accented letter, a joined emoji or a flag. Empty for a text without a visible character.
    """
    lines = (" ".join("".join(filter(_is_shown, line)).split()) for line in text.splitlines())
    line = next((line for line in lines if line), "")
    if len(line) <= MAX_TITLE:
        return line
    cut = MAX_TITLE - 1  # one for the ellipsis
    space = line.rfind(" ", MAX_TITLE // 2, cut + 1)
    if space > 0:
        cut = space
    while cut > 1 and _joined(line, cut):
        cut -= 1
    return line[:cut].rstrip() + "…"


def _is_shown(character: str) -> bool:
    """White space counts: it separates. Other control characters do not."""
    return character.isspace() or unicodedata.category(character) != "Cc"


def _joined(line: str, cut: int) -> bool:
    """Tell whether the characters before and after `cut` look like one."""
    before, after = line[cut - 1], line[cut]
    return (
        unicodedata.category(after).startswith("M")
        or _ZERO_WIDTH_JOINER in (before, after)
        or ord(after) in _SKIN_TONES
        or (ord(after) in _FLAG_LETTERS and _odd_flag_letters(line[:cut]))
    )


def _odd_flag_letters(head: str) -> bool:
    """Tell whether `head` ends inside a flag, which is a pair of flag letters."""
    n = len(head) - len(head.rstrip("".join(map(chr, _FLAG_LETTERS))))
    return n % 2 == 1
