"""The name of an operator in messages. Loads nothing."""


def shown(op: str, written: str, module: str) -> str:
    """Return the name of an operator in texts: ``ReLU6 d1.act (aten::hardtanh)``, ``aten::cat in d1``."""
    suffix = f" ({op})" if op else ""
    if written and "::" not in written:
        return f"{written} {module}".rstrip() + suffix
    name = f"{written} ({op})" if written else op
    return f"{name} in {module}" if module else name
