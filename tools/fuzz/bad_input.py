"""Cases that must be refused: each ends in a fallback with a reason, or in a clear error before anything is lowered."""

from dataclasses import replace

from tools.fuzz.cases import Case, Config, Input, one_line

_PLAIN = Input((1, 4, 6, 6))
_CONV = "self.m0 = nn.Conv2d(4, 4, 3)"

#: By name: the source of a net, and its input.
NETS: dict[str, tuple[str, Input]] = {
    "complex input": (one_line("x0.real * 2"), replace(_PLAIN, dtype="complex64")),
    "complex inside": (one_line("torch.view_as_real(torch.complex(x0, x0 + 1)) * 2"), _PLAIN),
    "complex output": (one_line("torch.complex(x0, torch.relu(x0))"), _PLAIN),
    "fft": (one_line("torch.fft.rfft(x0).abs()"), _PLAIN),
    "float64 input": (one_line("torch.relu(x0) + 1"), replace(_PLAIN, dtype="float64")),
    "float64 net": (one_line("self.m0(x0)", "self.m0 = nn.Conv2d(4, 4, 3).double()"), replace(_PLAIN, dtype="float64")),
    "float64 inside": (one_line("self.m0(x0).double() * 2", _CONV), _PLAIN),
    "empty input": (one_line("torch.relu(x0) * 2"), Input((1, 0, 4))),
    "empty batch": (one_line("torch.relu(self.m0(x0))", _CONV), Input((0, 4, 6, 6))),
    "empty inside": (one_line("torch.cat((x0, x0[:, :0] * 2), 1)"), _PLAIN),
    "empty output": (one_line("torch.relu(x0)[:, 4:]"), _PLAIN),
    "int64 overflow": (one_line("torch.full([6], 2**62, dtype=torch.int64) * 4 + x0.to(torch.int64)"), _PLAIN),
    "int64 input": (one_line("x0 * 3 + 2**40"), Input((1, 4), "int64", 2**40)),
    "int32 overflow": (one_line("x0 * (2**31 - 1)"), Input((1, 4), "int32", 2**30)),
    "int8 input": (one_line("x0 + x0"), Input((1, 4), "int8", 127)),
    "uint8 input": (one_line("x0.float() * 2"), Input((1, 4), "uint8", 255)),
    "bool only": (one_line("~x0"), Input((1, 4), "bool")),
    "infinite scalar": (one_line("torch.relu(x0) + float('inf')"), _PLAIN),
    "infinite bound": (one_line("torch.clamp(self.m0(x0), 0, float('inf'))", _CONV), _PLAIN),
    "infinite mask": (one_line("torch.softmax(x0.masked_fill(x0 > 0, float('-inf')), -1)"), _PLAIN),
    "infinite constant": (
        one_line("x0 * self.m0", 'self.register_buffer("m0", torch.full([6], float("inf")))'),
        _PLAIN,
    ),
    "NaN scalar": (one_line("torch.relu(x0) * float('nan')"), _PLAIN),
    "NaN constant": (
        one_line("x0 + self.m0", 'self.register_buffer("m0", torch.tensor([1.0, float("nan")]))'),
        Input((3, 2)),
    ),
    "NaN weight": (one_line("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.weight, float('nan'))"), _PLAIN),
    "infinite weight": (one_line("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.weight, float('inf'))"), _PLAIN),
    "infinite bias": (one_line("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.bias, float('-inf'))"), _PLAIN),
    "huge weight": (one_line("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.weight, 1e30)"), _PLAIN),
    "tiny weight": (one_line("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.weight, 1e-40)"), _PLAIN),
    "zero weight": (one_line("self.m0(x0)", _CONV, "nn.init.zeros_(self.m0.weight)"), _PLAIN),
    "rank 7": (one_line("torch.relu(x0) * 2 + x0"), Input((1, 2, 1, 2, 1, 2, 2))),
    "rank 7 inside": (one_line("(x0.reshape(1, 2, 2, 2, 3, 3, 2) * 2).permute(6, 5, 4, 3, 2, 1, 0).flatten()"), _PLAIN),
    "rank 8 permute": (one_line("x0.permute(7, 6, 5, 4, 3, 2, 1, 0) + 1"), Input((1, 2, 1, 2, 1, 2, 2, 1))),
    "no operator": (one_line("x0"), _PLAIN),
    "no operator, twice": (one_line("x0, x0"), _PLAIN),
    "constant alone": (one_line("self.m0", 'self.register_buffer("m0", torch.ones(3))'), _PLAIN),
    "parameter alone": (one_line("torch.softmax(self.m0, 0)", "self.m0 = nn.Parameter(torch.rand(3))"), _PLAIN),
    "input unused": (one_line("torch.ones(2, 3) * 2"), _PLAIN),
}
CONFIGS = {
    "INT": Config("INT", "int8"),
    "INT+FP": Config("INT+FP", "int8", "propagate"),
    "FP": Config("FP", "float"),
    "a16w8": Config("INT", "a16w8"),
}


def bad_case(name: str, config: str) -> Case:
    """Return the case of a net and a configuration."""
    source, given = NETS[name]
    return Case(source, (given,), CONFIGS[config], 1)
