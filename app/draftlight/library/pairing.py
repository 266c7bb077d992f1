"""May this draft model serve this target? Yes, or no with reasons a person understands. Reads headers, loads nothing.

Looser than llama.cpp where it can be: flags (add BOS, add EOS) do not matter, since the engine feeds token ids, and
sizes may differ by any padding; stricter where it must be: every common token is compared, not those from id 5 on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftlight.library.formats import TokenType
from draftlight.library.gguf import GgufHeader
from draftlight.library.header_file import shown_name, split_strings
from draftlight.library.kinds import ModelKind

NO_ROLLBACK_ARCHITECTURES = frozenset(
    {
        "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7",
        "jamba", "falcon-h1", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe",
        "qwen3next", "kimi-linear", "bailingmoe3", "kimi-k3", "glm5-next", "qwen35", "qwen35moe", "qwen4exp",
        "deepseek4", "minimax-01",
    }
)  # fmt: skip
"""Recurrent, then hybrid architectures: their state is a running sum, from which a rejected draft cannot be taken."""

SHOWN_BYTES = 40
NGRAM_INSTEAD = "N-gram drafting works with any target that can roll back."


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Whether the draft can serve the target. Every reason (why not) and warning (it can, but) is a sentence."""

    ok: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Difference:
    """A token id with different texts, and what each side uses the token for."""

    token: int
    target_text: bytes
    draft_text: bytes
    is_text: bool


def check_pair(target: GgufHeader, draft: GgufHeader) -> PairVerdict:
    """Compare two headers. Raises BadModelFile where a vocabulary cannot be read from its file any more."""
    reasons = [*_kind_reasons(target, draft), *_rollback_reasons(target, draft)]
    warnings: list[str] = []
    if not reasons:
        reasons, warnings = _compare_vocabularies(target, draft)
    if not reasons:
        warnings += _cost_warnings(target, draft)
    return PairVerdict(ok=not reasons, reasons=tuple(reasons), warnings=tuple(warnings))


def can_roll_back(header: GgufHeader) -> bool:
    """Tell whether the model's memory can drop rejected tokens; without that nothing can be drafted for it."""
    return header.architecture not in NO_ROLLBACK_ARCHITECTURES


def _kind_reasons(target: GgufHeader, draft: GgufHeader) -> Iterator[str]:
    for role, header in (("target", target), ("draft", draft)):
        if not header.kind.writes_text:
            yield f"The {role} {shown_name(header.path)} is {header.kind.description}."


def _rollback_reasons(target: GgufHeader, draft: GgufHeader) -> Iterator[str]:
    for role, header in (("target", target), ("draft", draft)):
        if not can_roll_back(header):
            yield (
                f"The {role} model's architecture {header.architecture} keeps a running state that cannot be rolled "
                f"back, so a rejected draft could not be taken back."
            )


def _compare_vocabularies(target: GgufHeader, draft: GgufHeader) -> tuple[list[str], list[str]]:
    """Return reasons and warnings."""
    if target.tokenizer_model != draft.tokenizer_model:
        types = f"{target.tokenizer_model!r} for the target, {draft.tokenizer_model!r} for the draft"
        return [f"The vocabularies are of different types: {types}. {NGRAM_INSTEAD}"], []
    for role, header in (("target", target), ("draft", draft)):
        if not header.n_tokens:
            return [f"The {role} {shown_name(header.path)} carries no vocabulary."], []
    target_types, draft_types = target.token_types(), draft.token_types()
    warnings: list[str] = []
    for difference in _differences(target.token_bytes(), draft.token_bytes(), target_types, draft_types):
        texts = f"{_shown(difference.target_text)} for the target, {_shown(difference.draft_text)} for the draft"
        if difference.is_text:
            return [f"Token {difference.token:,} differs: {texts}. {NGRAM_INSTEAD}"], []
        if not warnings:
            warnings.append(f"Control token {difference.token:,} differs: {texts}. Drafts around it will be rejected.")
    byte_token = _first_byte_difference(target_types, draft_types)
    if byte_token is not None:
        meaning = "a raw byte for one model and text for the other"
        return [f"Token {byte_token:,} is {meaning}. {NGRAM_INSTEAD}"], []
    return [], [*warnings, *_special_token_warnings(target, draft), *_size_warnings(target, draft)]


def _differences(
    target: bytes, draft: bytes, target_types: NDArray[np.int64], draft_types: NDArray[np.int64]
) -> Iterator[_Difference]:
    """Yield the tokens whose texts differ, by id. Equal beginnings are compared as raw bytes, so they cost nothing."""
    common = min(len(target), len(draft))
    if target[:common] == draft[:common]:  # equal, or one goes on with more tokens
        return
    unequal = np.frombuffer(target, np.uint8, common) != np.frombuffer(draft, np.uint8, common)
    first = int(unequal.argmax())
    text_types = {TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.BYTE}
    position = 0
    for token, (ours, theirs) in enumerate(zip(split_strings(target), split_strings(draft), strict=False)):
        position += 8 + len(ours)
        if position <= first or ours == theirs:
            continue
        uses = {_type_of(target_types, token), _type_of(draft_types, token)}
        if TokenType.UNUSED not in uses:  # nobody is ever sent a padding token
            yield _Difference(token, ours, theirs, is_text=bool(uses & text_types))


def _type_of(types: NDArray[np.int64], token: int) -> int:
    return int(types[token]) if token < len(types) else TokenType.NORMAL


def _first_byte_difference(target: NDArray[np.int64], draft: NDArray[np.int64]) -> int | None:
    """Return the first id that is a raw byte in one vocabulary only: "<0x0A>" is then a line break or six letters."""
    common = min(len(target), len(draft))
    unequal = (target[:common] == TokenType.BYTE) != (draft[:common] == TokenType.BYTE)
    return int(unequal.argmax()) if unequal.any() else None


def _special_token_warnings(target: GgufHeader, draft: GgufHeader) -> Iterator[str]:
    """Yield what differs in the special tokens' jobs. The target's count; the draft only proposes."""
    ends = [{header.eos, header.eot} - {None} for header in (target, draft)]
    if all(ends) and not ends[0] & ends[1]:
        yield (
            "The draft ends its answers with another token than the target; its drafts will be rejected where "
            "an answer ends."
        )
    if None not in {target.bos, draft.bos} and target.bos != draft.bos:
        yield "The draft was trained to see another token at the beginning of a text; it may draft a little worse."


def _size_warnings(target: GgufHeader, draft: GgufHeader) -> Iterator[str]:
    if draft.n_ctx_train and target.n_ctx_train and draft.n_ctx_train < target.n_ctx_train:
        yield (
            f"The draft was trained for {draft.n_ctx_train:,} tokens of context, the target for "
            f"{target.n_ctx_train:,}: past that, drafts get worse or stop."
        )


def _cost_warnings(target: GgufHeader, draft: GgufHeader) -> Iterator[str]:
    if target.file_id == draft.file_id:
        yield "The draft and the target are the same file: every draft is accepted, but none can be faster."
    elif target.split_count == draft.split_count == 1 and draft.n_parameters >= target.n_parameters:
        yield "The draft is not smaller than the target, so it cannot make answers faster."
    if draft.kind is ModelKind.BASE and target.kind is ModelKind.CHAT:
        yield "The draft is a base model: in chats its drafts will be rejected more often than an instruct model's."


def _shown(text: bytes) -> str:
    """Return a token's text in quotation marks, cut when long, with what is no text shown as escapes."""
    shown = text[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return ascii(shown) if not shown.isprintable() else f'"{shown}"' + ("..." if len(text) > SHOWN_BYTES else "")
