"""How texts name an operator. Loads nothing."""


def shown(op: str, written: str, module: str) -> str:
    """Return how texts name an operator: ``ReLU6 d1.act (aten::hardtanh)``, ``aten::cat in d1``."""
    if written and "::" not in written:
        return f"{f'{written} {module}'.rstrip()}{f' ({op})' if op else ''}"
    what = f"{written} ({op})" if written else op
    return f"{what} in {module}" if module else what
