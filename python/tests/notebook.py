"""Executes docs/notebook/kernel.ipynb with the installed package and compares its text with the committed page.

usage: notebook.py SOURCE [--write]
--write replaces the page and its pictures.
"""
import pathlib
import re
import shutil
import sys
import tempfile

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

MOST_BYTES = 400_000  # of the page and its pictures


def joined(outputs):
    """Text that a busy machine delivers in parts, as one."""
    whole = []
    for output in outputs:
        if output["output_type"] == "stream" and whole and whole[-1]["output_type"] == "stream":
            whole[-1]["text"] += output["text"]
        else:
            whole.append(output)
    return whole


def render(notebook):
    """The executed notebook as Markdown, and its pictures by name."""
    node = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(node, timeout=300, resources={"metadata": {"path": folder}}).execute()
    for cell in node.cells:  # without progress bars
        if cell.cell_type == "code":
            cell.outputs = joined([output for output in cell.outputs if output.get("name") != "stderr"])
    text, resources = MarkdownExporter().from_notebook_node(node, {"unique_key": notebook.stem, "output_files_dir": f"{notebook.stem}_files"})
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip() + "\n"
    return f"<!-- Made from {notebook.name} by python/tests/notebook.py --write. -->\n{text}", resources["outputs"]


def main():
    notebook = pathlib.Path(sys.argv[1]) / "docs" / "notebook" / "kernel.ipynb"
    page = notebook.with_suffix(".md")
    text, pictures = render(notebook)
    if "--write" in sys.argv:
        shutil.rmtree(notebook.parent / "kernel_files", ignore_errors=True)
        page.write_text(text, encoding="utf-8")
        for name, picture in pictures.items():
            path = notebook.parent / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(picture)
    expected = page.read_text(encoding="utf-8")
    for line, (ours, theirs) in enumerate(zip(text.splitlines(), expected.splitlines()), 1):
        if ours != theirs:
            sys.exit(f"{page}:{line}: the notebook prints\n  {ours}\nnot\n  {theirs}")
    if text != expected:
        sys.exit(f"{page}: the notebook prints {len(text)} characters, not {len(expected)}")
    sizes = [(notebook.parent / name).stat().st_size for name in pictures]
    if len(pictures) != 3 or not all(pictures.values()) or sum(sizes) + len(expected) > MOST_BYTES:
        sys.exit(f"{page}: {len(pictures)} pictures, {sum(sizes)} bytes")
    print(f"notebook: {len(text.splitlines())} lines equal, {len(pictures)} pictures")


if __name__ == "__main__":
    main()
