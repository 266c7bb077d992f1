"""A run's training: when it ends early, and what a kill between two files leaves."""

from pathlib import Path

import pytest
import torch

from draftlight.forge.distill import keep
from draftlight.forge.training import in_vain
from small_disk import small_disk


def test_a_plateau_ends_no_training() -> None:
    measured = [0.196, 0.214, 0.2179, 0.2153, 0.3024, 0.3395, 0.3692, 0.3804]  # of a starter draft's training
    for n_looks in (8, 12, 16):
        looks = [measured[n * 8 // n_looks] for n in range(n_looks)]
        looks[1] += 0.012  # a lucky look
        assert not any(in_vain(looks[:n], n_looks) for n in range(n_looks + 1))


def test_a_training_that_gets_worse_for_most_of_its_looks_ends() -> None:
    looks = [0.2, 0.3, *(0.29 - 0.01 * n for n in range(10))]
    assert not in_vain(looks[:9], 12)
    assert in_vain(looks[:10], 12)


def test_a_full_disk_is_told_as_such_and_leaves_what_was_there_before(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    file.write_bytes(b"an older checkpoint")
    with small_disk(), pytest.raises(OSError, match="File too large"):
        keep(file, {"weights": torch.zeros(1_000_000)})
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == b"an older checkpoint"
