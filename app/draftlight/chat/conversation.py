"""A conversation on disk as the prompt that its last message is answered from. Knows no model: only its vocabulary."""

from collections.abc import Sequence
from dataclasses import replace

from draftlight.chat.prompt import ChatMessage, ChatVocabulary, Prompt, PromptTooLong, build_prompt
from draftlight.history.records import Message


def prompt_of(
    vocabulary: ChatVocabulary, system_prompt: str, messages: Sequence[Message], n_ctx: int, reserve: int
) -> Prompt:
    """Build the prompt. Where unanswered questions make the last one too long, they are left out as turns that are.

    Raises NotAChatModel, BadChatTemplate, PromptTooLong.
    """
    said = [message for message in messages if message.text]
    try:
        return build_prompt(vocabulary, _turns(system_prompt, said), n_ctx, reserve)
    except PromptTooLong:
        answered = [
            message
            for message, following in zip(said, [*said[1:], None], strict=True)
            if following is None or following.role != message.role
        ]
        left_out = [message for message in said if message not in answered]
        if not left_out:
            raise
    prompt = build_prompt(vocabulary, _turns(system_prompt, answered), n_ctx, reserve)
    n_dropped = prompt.n_dropped_turns + len(left_out)
    return replace(prompt, n_dropped_turns=n_dropped, dropped=(*_turns("", left_out), *prompt.dropped))


def _turns(system_prompt: str, messages: Sequence[Message]) -> list[ChatMessage]:
    """What the model is told. A broken-off answer counts as far as it came.

    Questions whose answer never began are joined, because templates want the two sides to take turns.
    """
    turns = [ChatMessage("system", system_prompt)] if system_prompt.strip() else []
    for message in messages:
        if turns and turns[-1].role == message.role:
            turns[-1] = ChatMessage(message.role, f"{turns[-1].text}\n\n{message.text}")
        else:
            turns.append(ChatMessage(message.role, message.text))
    return turns
