"""Draw docs/pictures/shared-domain.svg: the codes of an int8 over the range of a ReLU, alone and shared.

python tools/draw_domains.py [--write]: prints the drawing, or writes it.
"""

import sys
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "shared-domain.svg"
#: What the ReLU gives, and what flows into the cat beside it.
HIGHEST, LOWEST = 5.4, -3.0
LEFT, UNIT = 130.0, 62.0  # pixels left of the lowest value, pixels to 1.0
STYLE = "text{font:14px sans-serif;fill:#222}.small{font-size:12px}.lost{fill:#b3261e}.kept{fill:#2b6cb0}"


def place(value: float) -> float:
    """Return where a real value stands, in pixels from the left."""
    return LEFT + (value - LOWEST) * UNIT


def text(x: float, y: float, words: str, style: str = "", anchor: str = "middle") -> str:
    """Return words at a place."""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" class="{style}">{words}</text>'


def bar(y: float, low: float, high: float, style: str) -> str:
    """Return a bar from one value to another."""
    width = place(high) - place(low)
    return f'<rect x="{place(low):.0f}" y="{y}" width="{width:.0f}" height="34" class="{style}" opacity=".75"/>'


def row(y: float, name: str, low: float) -> list[str]:
    """Return the bar of a domain that begins at a value, with the codes at its ends and at 0.0."""
    scale = (HIGHEST - low) / 255
    zero = -128 - round(low / scale)
    parts = [text(12, y + 22, name, anchor="start")]
    if low < 0:
        parts += [
            bar(y, low, 0, "lost"),
            text(place(0) - 6, y - 8, f"-128 to {zero - 1}: values below 0.0 get through", "small lost", "end"),
            text(place(low), y + 52, "-128", "small"),
        ]
    parts += [
        bar(y, 0, HIGHEST, "kept"),
        text(place(0) + 5, y + 52, f"{zero}", "small", "start"),
        text(place(HIGHEST), y + 52, "127", "small"),
    ]
    return parts


def drawing() -> str:
    """Return the drawing as SVG."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 290" role="img">',
        f'<style>{STYLE}</style><rect width="720" height="290" fill="#fff"/>',
        *row(40, "relu alone", 0.0),
        text(place(0) + 6, 32, "RESCALE saturates at -128, which is 0.0: that is the ReLU", "small", "start"),
        *row(150, "relu in a cat", LOWEST),
        f'<path d="M{place(0):.0f} 14V250" stroke="#222" stroke-dasharray="4 3"/>',
        text(place(0), 266, "0.0"), text(place(LOWEST), 266, f"{LOWEST}"), text(place(HIGHEST), 266, f"{HIGHEST}"),
        text(place((HIGHEST + LOWEST) / 2), 284, "the same values in both rows; below each bar, the codes", "small"),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(drawing())
    else:
        sys.stdout.write(drawing())
