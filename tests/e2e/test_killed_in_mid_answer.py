"""`kill -9` in the middle of an answer loses nothing but the last second."""

import signal

import pytest

from program_process import ONE_THREAD, Program, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.model]

ANSWERS = "SELECT text, status FROM messages WHERE role = 'assistant'"


def test_a_killed_chat_shows_its_partial_answer_again(program: Program) -> None:
    chat = program.start("chat", *ONE_THREAD, "--temperature", "0", "--max-tokens", "600")
    assert chat.stdin is not None
    chat.stdin.write("Write a long story about a lighthouse.\n")
    chat.stdin.flush()
    wait_until(lambda: program.rows(f"{ANSWERS} AND length(text) > 20"), "a part of the answer on disk")
    chat.send_signal(signal.SIGKILL)
    chat.wait()

    ((partial, _),) = program.rows(ANSWERS)
    (n_rounds,) = program.rows("SELECT count(*) FROM rounds")[0]
    assert n_rounds > 1
    assert len(partial) > 20

    again = program.run("chat", *ONE_THREAD, text="/list\n/open 1\n")
    assert again.returncode == 0, again.stderr
    assert "lighthouse" in again.stdout
    assert partial in again.stdout
    assert "the program ended here" in again.stdout
    assert [status for _, status in program.rows(ANSWERS)] == ["interrupted"]


def test_the_next_message_goes_on_with_the_same_conversation(program: Program) -> None:
    options = ["--temperature", "0", "--max-tokens", "8"]
    first = program.run("chat", *ONE_THREAD, *options, text="Say hello.\n/k 0\n/seed 5\nAgain.\n")
    assert first.returncode == 0, first.stderr
    assert str(program.database) in first.stderr
    roles = [role for (role,) in program.rows("SELECT role FROM messages ORDER BY id")]
    assert roles == ["user", "assistant", "user", "assistant"]
    lengths = program.rows("SELECT draft_length, seed FROM messages WHERE role = 'assistant' ORDER BY id")
    assert lengths[1] == (0, 5)
    assert program.rows("SELECT count(*) FROM conversations") == [(1,)]
