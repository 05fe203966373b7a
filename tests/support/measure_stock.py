"""Measure what the installed ExecuTorch's stock classes do with the nets of the island table.

Run from the root of the checkout, with the lane's interpreter:
    python tests/support/measure_stock.py tests/data/stock-1.5.csv          # all nets, about half an hour
    python tests/support/measure_stock.py tests/data/stock-1.4.csv pairwise # those of `make test`
"""

import csv
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from lowering import PROFILES
from nets import ALL_ROWS, pairwise_rows
from test_island_table import stock_verdict


def main(path: str, selection: str = "all") -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("net", "profile", "verdict"))
        for row in pairwise_rows() if selection == "pairwise" else ALL_ROWS:
            for profile in PROFILES:
                writer.writerow((row.id, profile, stock_verdict(row, profile)))
                file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
