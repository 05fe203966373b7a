"""Say in a table and in a sentence how the exports turned out."""

from __future__ import annotations

from importlib.metadata import version

from rich.markup import escape
from rich.table import Table

from demo.export import INT8, WAYS, Row

_CAPTION = """\
PSNR and codes are measured in the TOSA reference model; VGF compiles the TOSA of the section above it.
Codes: largest difference from the quantised PyTorch graph evaluated in double, in steps of its output."""


def table(references: list[Row], rows: list[Row]) -> Table:
    """Return the one table, a section for the references and one for each target."""
    title = f"Denoising a held-out photograph, ExecuTorch {version('executorch')}"
    result = Table(title=title, title_style="bold", caption=_CAPTION, caption_justify="left")
    result.add_column("Target")
    result.add_column("Partitioner")
    for heading in ("PSNR\ndB", "Worst\ncodes", "Dele-\ngates", "MACs\ninside", "Lowering\ns", ".pte\nkB"):
        result.add_column(heading, justify="right")
    result.add_column("In words")
    previous = ""
    for row in [*references, *rows]:
        if row.target != previous:
            result.add_section()
        result.add_row("" if row.target == previous else row.target, row.way, *_cells(row), in_words(row))
        previous = row.target
    return result


def _cells(row: Row) -> list[str]:
    return [
        "-" if row.psnr is None else f"{row.psnr:.2f}",
        "-" if row.codes is None else str(row.codes),
        str(row.delegates or "-"),
        f"{row.macs:.0%}" if row.delegates else "-",
        f"{row.seconds:.1f}" if row.seconds else "-",
        f"{row.size / 1000:.0f}" if row.size else "-",
    ]


def in_words(row: Row) -> str:
    """Return what became of an export, in a few words."""
    if row.crash:
        return f"[red]crashed: {escape(row.crash)}"
    if row.way not in WAYS:
        return "float32 rounding" if row.codes else ""
    if row.codes is None:
        return "compiled"
    if row.wrong:
        return "[red]silently wrong"
    if row.codes:
        return "[green]exact but for ties"
    return "stock is right on this ExecuTorch" if row.way == WAYS[0] else "[green]exact"


def conclusion(references: list[Row], rows: list[Row]) -> str:
    """Return one sentence on the rows of the first target, with numbers."""
    int8 = next(row.psnr for row in references if row.way == INT8)
    stock, *safe = (row for row in rows if row.target == rows[0].target)
    if stock.crash:
        first = "Stock ExecuTorch cannot export this U-Net"
    elif stock.wrong:
        first = (
            f"Without a word, stock ExecuTorch turns a quantised U-Net that denoises to {int8:.1f} dB into a delegate "
            f"that reaches {stock.psnr:.1f} dB, up to {stock.codes} codes off"
        )
    else:
        first = "Stock ExecuTorch exports this U-Net right"
    if any(row.crash or row.wrong for row in rows if row.way != WAYS[0]):
        return f"{first}; safe_arm does not export it right either: a bug in safe_arm, please report it."
    shares = " or ".join(f"{row.macs:.0%} ({row.way.removeprefix('safe_arm, ')})" for row in safe)
    how = "to the bit"
    if any(row.codes for row in safe):
        how = "but for values in the middle between two codes, which may go to either"
    return f"{first}; safe_arm's export is the quantised U-Net {how}, with {shares} of its MACs in delegates."
