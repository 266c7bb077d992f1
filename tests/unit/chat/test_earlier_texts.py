"""The rules of drafting from earlier texts: those of this chat that the prompt lacks, the newest, not too many."""

import pytest

from draftlight.chat.prompt import PromptTooLong
from draftlight.engine.decoding import GenerationRequest
from scripted_chat import Chat, answer


def earlier(request: GenerationRequest) -> list[str]:
    return ["".join(map(chr, tokens)) for tokens in request.earlier]


def test_what_the_prompt_holds_is_not_given_twice(chat: Chat) -> None:
    decoder = chat.script(*answer("So."))
    list(chat.send("Why?"))
    list(chat.send("And?"))
    assert [earlier(request) for request in decoder.requests] == [[], []]


def test_answers_that_are_written_anew_can_be_drafted_from(chat: Chat) -> None:
    decoder = chat.script(*answer("First."))
    list(chat.send("Why?"))
    for text in ("Second.", "Third."):
        decoder.steps = list(answer(text))
        list(chat.regenerate(chat.last().id))
    assert earlier(decoder.requests[-1]) == ["First.", "Second."], "not the one that is being written"


def test_turns_that_no_longer_fit_can_be_drafted_from(chat: Chat) -> None:
    decoder = chat.script(*answer("So. " * 20), n_ctx=400)
    for number in range(4):
        list(chat.send(f"{number} " + "x" * 60))
    said, prompt = earlier(decoder.requests[-1]), decoder.prompt()
    assert said[:2] == ["0 " + "x" * 60, "So. " * 20]
    assert [text for text in said if f"\n{text}<|im_end|>" in prompt and not text.startswith("So")] == []
    assert all(f"{number} x" in prompt or any(text.startswith(f"{number} x") for text in said) for number in range(4))


def test_a_question_that_was_too_long_can_be_drafted_from(chat: Chat) -> None:
    decoder = chat.script(*answer("So."), n_ctx=200)
    with pytest.raises(PromptTooLong):
        list(chat.send("x" * 1000))
    list(chat.send("Shorter?"))
    assert earlier(decoder.requests[-1]) == ["x" * 1000]


def test_another_conversations_texts_are_never_given(chat: Chat) -> None:
    decoder = chat.script(*answer("Secret."))
    list(chat.send("Why?"))
    list(chat.regenerate(chat.last().id))
    chat.conversation = chat.store.create_conversation().id
    decoder.steps = list(answer("So."))
    list(chat.send("Why?"))
    list(chat.regenerate(chat.last().id))
    assert [earlier(request) for request in decoder.requests[2:]] == [[], ["So."]]


def test_of_too_much_text_the_newest_is_given(chat: Chat) -> None:
    decoder = chat.script(*answer("oldest"))
    list(chat.send("Why?"))
    for text in ("b" * 3000, "a" * 3000):
        decoder.steps = list(answer(text))
        list(chat.regenerate(chat.last().id))
    list(chat.regenerate(chat.last().id))
    assert earlier(decoder.requests[-1]) == ["b" * 1096, "a" * 3000]
