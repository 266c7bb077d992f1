"""The report's folder: Markdown, JSON and one HTML page with its pictures inside, which loads nothing from anywhere."""

import json
from html import escape
from pathlib import Path

from draftlight.bench.plots import acceptance_by_position, cost_staircase, speed_up_by_kind
from draftlight.bench.report import BY_KIND, BenchReport, as_json, as_markdown
from draftlight.errors import UserError
from draftlight.paths import make_folder

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff }
body { max-width: 1000px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse; font-size: 13px }
th, td { text-align: left; padding: 4px 10px; border-bottom: 1px solid #ddd }
td { font-variant-numeric: tabular-nums } svg { max-width: 100%; height: auto } .table { overflow-x: auto }
"""


def write_folder(report: BenchReport, folder: Path) -> tuple[Path, ...]:
    """Write report.md, report.json and report.html and return their paths. Raises UserError."""
    texts = {
        "report.md": as_markdown(report),
        "report.json": json.dumps(as_json(report, prompts=True), indent=1, allow_nan=False) + "\n",
        "report.html": as_page(report),
    }
    make_folder(folder)
    try:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"The report cannot be written to {folder}: {reason}.", "Choose another folder.") from error
    return tuple(folder / name for name in texts)


def as_page(report: BenchReport) -> str:
    """Return the HTML page: pictures first, then the tables of the Markdown report."""
    figures = report.figures
    pictures = [
        ("Speed-up by kind of prompt", speed_up_by_kind(figures)),
        ("Acceptance by position", acceptance_by_position(figures)),
        ("What a verify costs", cost_staircase(report.facts)),
    ]
    shown = "".join(f"<h2>{escape(title)}</h2>{svg}" for title, svg in pictures if svg)
    body = _html(as_markdown(report), shown)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Draftlight benchmark</title><style>{_STYLE}</style><body>{body}</body></html>\n"
    )


def _html(markdown: str, pictures: str) -> str:
    """Turn our own Markdown, of headings, lists, tables and paragraphs only, into HTML; pictures before the details."""
    parts: list[str] = []
    for block in markdown.strip().split("\n\n"):
        lines = block.splitlines()
        if block.startswith("# "):
            parts.append(f"<h1>{escape(block[2:])}</h1>")
        elif block.startswith("## "):
            parts.append(f"<h2>{escape(block[3:])}</h2>")
        elif block.startswith("|"):
            parts.append(_table(lines))
        elif block.startswith("- "):
            parts.append("<ul>" + "".join(f"<li>{escape(line[2:])}</li>" for line in lines) + "</ul>")
        else:
            parts.append(f"<p>{escape(block)}</p>")
    place = parts.index(f"<h2>{BY_KIND}</h2>") if f"<h2>{BY_KIND}</h2>" in parts else len(parts)
    return "".join([*parts[:place], pictures, *parts[place:]])


def _table(lines: list[str]) -> str:
    rows = [line.strip("| ").split(" | ") for line in lines]
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[2:])
    return f'<div class="table"><table><tr>{head}</tr>{body}</table></div>'
