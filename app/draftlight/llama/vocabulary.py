"""A loaded model's vocabulary: text to token ids and back, control tokens, chat template. Knows no cache."""

import ctypes
import re
from collections.abc import Mapping
from types import MappingProxyType

from draftlight.llama.library import native

# Texts that act as turn markers even where a model file lists them as ordinary added tokens.
_TURN_MARKER = re.compile(r"<\|[^<>|]+\|>|<[a-z]+_of_[a-z]+>")


class LlamaVocabulary:
    """Tokenizer and ChatVocabulary of one loaded model. It must not be used after its model was closed."""

    def __init__(self, model: object) -> None:
        """Read the vocabulary of a native `llama_model`; about 1 microsecond a token."""
        self._lib = native()
        self._vocab = self._lib.llama_model_get_vocab(model)
        self.n_tokens: int = self._lib.llama_vocab_n_tokens(self._vocab)
        self._pieces: list[bytes | None] = [None] * self.n_tokens
        self._labels: list[str | None] = [None] * self.n_tokens
        self._buffer = ctypes.create_string_buffer(256)
        control: dict[str, int] = {}
        marker_texts = []
        ends = []
        for token in range(self.n_tokens):
            attributes = self._lib.llama_vocab_get_attr(self._vocab, token)
            if attributes & (self._lib.LLAMA_TOKEN_ATTR_CONTROL | self._lib.LLAMA_TOKEN_ATTR_USER_DEFINED):
                text = self.text_of(token)
                if attributes & self._lib.LLAMA_TOKEN_ATTR_CONTROL:
                    control.setdefault(text, token)
                elif _TURN_MARKER.fullmatch(text):
                    control.setdefault(text, token)
                    marker_texts.append(text)
            if self._lib.llama_vocab_is_eog(self._vocab, token):
                ends.append(token)
        self.end_tokens = frozenset(ends)
        self.control_tokens: Mapping[str, int] = MappingProxyType(control)
        self._markers = re.compile("|".join(map(re.escape, marker_texts))) if marker_texts else None
        bos, eos = self._lib.llama_vocab_bos(self._vocab), self._lib.llama_vocab_eos(self._vocab)
        self.bos: int | None = bos if bos >= 0 else None
        self.bos_text = self.text_of(bos) if bos >= 0 else ""
        self.eos_text = self.text_of(eos) if eos >= 0 else ""
        self.add_bos = bool(self._lib.llama_vocab_get_add_bos(self._vocab))
        template = self._lib.llama_model_chat_template(model, None)
        self.chat_template: str | None = None if template is None else template.decode("utf-8", "replace")

    def text_of(self, token: int) -> str:
        """Return the vocabulary's own spelling of a token: what the file says, not what it prints."""
        text: str = self._lib.llama_vocab_get_text(self._vocab, token).decode("utf-8", "replace")
        return text

    def encode(self, text: str) -> list[int]:
        """Return the token ids of plain text, of any length. Control-token texts inside it stay text; no BOS is added.

        Lone surrogates, which UTF-8 cannot spell, become question marks.
        """
        if self._markers is None:
            return self._encode_part(text)
        # llama.cpp keeps control tokens out of plain text, but not added ones that act as such: cut those in two.
        tokens = []
        start = 0
        for marker in self._markers.finditer(text):
            tokens += self._encode_part(text[start : marker.start() + 1])
            start = marker.start() + 1
        return tokens + self._encode_part(text[start:])

    def _encode_part(self, text: str) -> list[int]:
        if not text:
            return []
        data = text.encode("utf-8", "replace")
        room = len(data) // 2 + 16
        while True:
            tokens = (ctypes.c_int32 * room)()
            count = self._lib.llama_tokenize(self._vocab, data, len(data), tokens, room, False, False)
            if count >= 0:
                return tokens[:count]
            room = -count

    def piece(self, token: int) -> bytes:
        """Return the UTF-8 bytes of a token, possibly part of a character; empty for control tokens."""
        known = self._pieces[token]
        if known is None:
            known = self._pieces[token] = self._read_piece(token)
        return known

    def _read_piece(self, token: int) -> bytes:
        size = self._lib.llama_token_to_piece(self._vocab, token, self._buffer, len(self._buffer), 0, False)
        if size < 0:
            self._buffer = ctypes.create_string_buffer(-size)
            size = self._lib.llama_token_to_piece(self._vocab, token, self._buffer, -size, 0, False)
        return self._buffer.raw[:size]

    def label(self, token: int) -> str:
        """Return what to call a token on a screen: its text, or a control token's name; never empty.

        Bytes that are only part of a character are spelled out in hexadecimal.
        """
        known = self._labels[token]
        if known is None:
            read = self.piece(token).decode("utf-8", "backslashreplace") or self.text_of(token) or f"<{token}>"
            known = self._labels[token] = read
        return known

    def is_end(self, token: int) -> bool:
        """Tell whether the token ends an answer (end of sequence, end of turn)."""
        return token in self.end_tokens
