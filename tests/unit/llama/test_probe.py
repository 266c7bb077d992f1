"""What the probe decides and reckons beside the models."""

from draftlight.llama.probe import ProcessorTimes, thread_counts


def test_the_others_share_leaves_out_this_process_and_idle_time() -> None:
    before = ProcessorTimes(passed=100.0, busy=50.0, own=10.0)
    assert ProcessorTimes(104.0, 53.0, 11.0).others_busy_since(before) == 0.5
    assert ProcessorTimes(104.0, 51.0, 12.0).others_busy_since(before) == 0.0  # the counters' steps differ
    assert before.others_busy_since(before) == 0.0
    assert ProcessorTimes.now().busy <= ProcessorTimes.now().passed


def test_the_thread_counts_tried_are_the_powers_of_two_and_all_cores() -> None:
    assert [thread_counts(most) for most in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]
