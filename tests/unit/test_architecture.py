"""The tree's own rules: sizes, docstrings, the README's map, what may be installed. lint-imports sees to the layers."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
TEXT_SUFFIXES = {".py", ".md", ".toml", ".json", ".jsonl", ".svg", ".spec", ".desktop", ".xml", ".sh", ".txt", ""}


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def text_files() -> Iterator[Path]:
    for entry in sorted(ROOT.iterdir()):
        if entry.is_file() and entry.name != ".git":  # in a worktree a file that says where the repository is
            yield entry
        elif entry.name in {"app", "tests", "packaging", "assets", "models", ".ci"}:
            yield from (
                path
                for path in sorted(entry.rglob("*"))
                if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
            )


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {
        where(path): len(path.read_text("utf-8").splitlines()) for path in python_files("app", "packaging", "tests")
    }
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_50_lines() -> None:
    lengths = {
        f"{where(path)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in python_files("app", "packaging", "tests")
        for node in functions(path)
    }
    assert {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES} == {}


def test_every_module_says_what_it_owns() -> None:
    silent = [
        where(path)
        for path in python_files("app", "packaging")
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def test_packaging_is_no_package() -> None:
    assert not (ROOT / "packaging" / "__init__.py").exists(), "it would shadow the packaging library"


def test_no_file_names_a_package_registry_or_a_path_of_one_machine() -> None:
    hosts = ["py" + "pi.org", "python" + "hosted.org", "registry.npm" + "js", "crates" + ".io", "ana" + "conda.org"]
    paths = ["/opt/" + "dl", "/wo" + "rk/", "/ro" + "ot/", "/home/[a-z]"]
    forbidden = re.compile("|".join([*map(re.escape, hosts), *(rf"(?<![\w.~]){path}" for path in paths)]))
    named = [
        f"{where(path)}:{number}: {line.strip()[:100]}"
        for path in text_files()
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert named == []


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_no_pyside6_that_drops_references_can_be_installed(python: str) -> None:
    # 6.12.0 drops a reference to None in every void call; None is immortal from 3.12 on, but it is kept out there too.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [
        requirement
        for requirement in map(Requirement, project["dependencies"])
        if requirement.name.lower().startswith(("pyside6", "shiboken6"))
        and (requirement.marker is None or requirement.marker.evaluate({"python_version": python}))
    ]
    assert any(requirement.name == "PySide6-Essentials" for requirement in asked)
    assert not all(requirement.specifier.contains("6.12.0") for requirement in asked)
    assert all(requirement.specifier.contains("6.11.3") for requirement in asked)


def test_the_program_itself_needs_nothing_that_only_makes_draft_models() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed, forge = (
        {Requirement(line).name.lower() for line in lines}
        for lines in (project["dependencies"], project["optional-dependencies"]["forge"])
    )
    assert "torch" in forge
    assert needed & forge == set()


def tree_paths(readme: str) -> list[str]:
    """Paths named by the README's trees: fenced as ```tree, two spaces a level, `name  description`."""
    found: list[str] = []
    for block in re.findall(r"^```tree\n(.*?)^```", readme, re.DOTALL | re.MULTILINE):
        parents: list[str] = []
        for line in filter(str.strip, block.splitlines()):
            name = re.split(r"\s{2,}", line.strip())[0]
            depth = (len(line) - len(line.lstrip())) // 2
            parents[depth:] = [name.rstrip("/")]
            found.append("/".join(parents) + ("/" if name.endswith("/") else ""))
    return found


def signpost_paths(readme: str) -> list[str]:
    """Paths in backticks in the last column of the table under the heading "Where do I change ..."."""
    section = re.search(r"^#+ Where do I change.*?\n(.*?)(?=^#|\Z)", readme, re.DOTALL | re.MULTILINE | re.IGNORECASE)
    rows = [line for line in section[1].splitlines() if line.startswith("|")] if section else []
    return [path for row in rows for path in re.findall(r"`([^`]+)`", row.rstrip("| ").rpartition("|")[2])]


@pytest.mark.parametrize("named", [tree_paths, signpost_paths])
def test_the_readme_names_only_what_exists(named: object) -> None:
    assert callable(named)
    paths = named((ROOT / "README.md").read_text("utf-8"))
    assert paths, "the README has lost its map"
    assert [path for path in paths if not (ROOT / path).exists()] == []


def images(readme: str) -> list[str]:
    """Files that the README shows as pictures."""
    return re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", readme)


def test_the_readme_s_pictures_exist() -> None:
    shown = images((ROOT / "README.md").read_text("utf-8"))
    assert shown, "the README shows no picture of the window"
    assert [path for path in shown if not (ROOT / path).is_file()] == []


def placeholders(text: str) -> list[str]:
    """What was left to be filled in, written as @NAME@."""
    return re.findall(r"@[A-Z][A-Z0-9_]*@", text)


def test_nothing_is_left_to_be_filled_in() -> None:
    texts = [ROOT / "README.md", ROOT / "packaging" / "CHANGELOG.md", ROOT / "models" / "README.md"]
    assert {where(path): left for path in texts if (left := placeholders(path.read_text("utf-8")))} == {}


def test_pictures_and_placeholders_are_found_as_written() -> None:
    assert images("a ![The window](assets/a.png) | ![](b/c.png) [no picture](d.md)") == ["assets/a.png", "b/c.png"]
    assert placeholders("Measured on @MACHINE@, write to someone@example.org or @HOME") == ["@MACHINE@"]


def test_the_readme_tree_shows_every_folder_of_the_package() -> None:
    shown = {path.rstrip("/") for path in tree_paths((ROOT / "README.md").read_text("utf-8"))}
    rooms = {where(path) for path in (ROOT / "app" / "draftlight").iterdir() if (path / "__init__.py").is_file()}
    assert rooms - shown == set()


def test_the_readme_trees_are_read_as_written() -> None:
    text = "# T\n```tree\napp/  the source\n  draftlight/  the package\n    app.py  root\ntests/  checks\n```\n"
    assert tree_paths(text) == ["app/", "app/draftlight/", "app/draftlight/app.py", "tests/"]
    table = "## Where do I change ...\n| this | here |\n|---|---|\n| the `K` default | `a/b.py`, `c/` |\n## Next\n"
    assert signpost_paths(table) == ["a/b.py", "c/"]
