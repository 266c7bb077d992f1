"""What a run is asked for: its file is a free name, or the one that the same run has written already."""

from pathlib import Path

import gguf
import pytest

from draftlight.errors import UserError
from draftlight.forge.request import request_for
from twins import Twins


def of_run(out: Path, run: str) -> Path:
    """Leave the file that a run of that name would."""
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_string("draftlight.forge.run", run)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return out


def test_a_run_that_ended_after_it_had_written_can_be_asked_for_again_and_nobody_else_s_file(
    twin_pair: Twins, tmp_path: Path
) -> None:
    target, out = twin_pair.target, tmp_path / "made.gguf"
    folder = request_for(target, out=out).folder
    assert request_for(target, out=of_run(out, folder.name)).out == out
    folder.mkdir(parents=True)
    (folder / "done").touch()
    with pytest.raises(UserError, match="exists"):
        request_for(target, out=out)
    (folder / "done").unlink()
    with pytest.raises(UserError, match="exists"):
        request_for(target, out=of_run(out, "another"))
    out.write_bytes(b"no model")
    with pytest.raises(UserError, match="exists"):
        request_for(target, out=out)
