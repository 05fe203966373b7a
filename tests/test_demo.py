"""``make demo`` runs to its end and writes its picture."""

import re

from interpreter import ROOT, python


def rows(bar: str, text: str) -> list[list[str]]:
    """The rows of a table with a number in their third column, each with its target."""
    found, target = [], ""
    for line in text.splitlines():
        cells = [cell.strip(" *") for cell in line.split(bar)[1:-1]]
        if len(cells) > 2 and re.fullmatch(r"\d+\.\d+", cells[2]):
            target = cells[0] or target
            found.append([target, *("" if cell == "-" else cell for cell in cells[1:])])
        elif len(cells) > 2:
            target = cells[0] or target
    return found


def untied(row: list[str]) -> list[str]:
    """A row as it would be if no value lay between two codes: calibration depends on the machine, as the ties do."""
    return [*row[:3], "0", *row[4:-1], "exact"] if row[-1] == "exact but for ties" else row


def test_every_safe_export_is_right_and_the_picture_is_drawn(tmp_path):
    done = python("-m", "demo", cwd=tmp_path)
    log = (tmp_path / "out" / "demo.log").read_text()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}\n{log[-2000:]}"
    assert "Picture: out/demo.png" in done.stdout
    shown = rows("|", (ROOT / "README.md").read_text())
    # In the terminal's table the lowering's seconds and the size of the file stand before the words.
    printed = [untied([*row[:6], *row[8:]]) for row in rows("│", done.stdout)]
    assert len(shown) == 9
    assert [row for row in shown if row not in printed] == []
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
