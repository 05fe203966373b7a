"""Cases that must be refused: each ends in a fallback with a reason, or in a clear error before anything is lowered."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.cases import Case, Config, Input

_PLAIN = Input((1, 4, 6, 6))


def _net(returned: str, *layers: str) -> str:
    lines = "".join(f"        {line}\n" for line in layers)
    made = f"    def __init__(self):\n        super().__init__()\n{lines}\n" if layers else ""
    return f"class Net(nn.Module):\n{made}    def forward(self, x0):\n        return {returned},\n"


_CONV = "self.m0 = nn.Conv2d(4, 4, 3)"

#: By name: the source of a net, and its input.
NETS: dict[str, tuple[str, Input]] = {
    "complex input": (_net("x0.real * 2"), replace(_PLAIN, dtype="complex64")),
    "complex inside": (_net("torch.view_as_real(torch.complex(x0, x0 + 1)) * 2"), _PLAIN),
    "complex output": (_net("torch.complex(x0, torch.relu(x0))"), _PLAIN),
    "fft": (_net("torch.fft.rfft(x0).abs()"), _PLAIN),
    "float64 input": (_net("torch.relu(x0) + 1"), replace(_PLAIN, dtype="float64")),
    "float64 net": (_net("self.m0(x0)", "self.m0 = nn.Conv2d(4, 4, 3).double()"), replace(_PLAIN, dtype="float64")),
    "float64 inside": (_net("self.m0(x0).double() * 2", _CONV), _PLAIN),
    "empty input": (_net("torch.relu(x0) * 2"), Input((1, 0, 4))),
    "empty batch": (_net("torch.relu(self.m0(x0))", _CONV), Input((0, 4, 6, 6))),
    "empty inside": (_net("torch.cat((x0, x0[:, :0] * 2), 1)"), _PLAIN),
    "empty output": (_net("torch.relu(x0)[:, 4:]"), _PLAIN),
    "int64 overflow": (_net("torch.full([4], 2**62, dtype=torch.int64) * 4 + x0.to(torch.int64)"), _PLAIN),
    "int64 input": (_net("x0 * 3 + 2**40"), Input((1, 4), "int64", 2**40)),
    "int32 overflow": (_net("x0 * (2**31 - 1)"), Input((1, 4), "int32", 2**30)),
    "int8 input": (_net("x0 + x0"), Input((1, 4), "int8", 127)),
    "uint8 input": (_net("x0.float() * 2"), Input((1, 4), "uint8", 255)),
    "bool only": (_net("~x0"), Input((1, 4), "bool")),
    "infinite scalar": (_net("torch.relu(x0) + float('inf')"), _PLAIN),
    "infinite bound": (_net("torch.clamp(self.m0(x0), 0, float('inf'))", _CONV), _PLAIN),
    "infinite mask": (_net("torch.softmax(x0.masked_fill(x0 > 0, float('-inf')), -1)"), _PLAIN),
    "infinite constant": (
        _net("x0 * self.m0", 'self.register_buffer("m0", torch.full([6], float("inf")))'),
        _PLAIN,
    ),
    "NaN scalar": (_net("torch.relu(x0) * float('nan')"), _PLAIN),
    "NaN constant": (
        _net("x0 + self.m0", 'self.register_buffer("m0", torch.tensor([1.0, float("nan")]))'),
        Input((3, 2)),
    ),
    "NaN weight": (_net("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.weight, float('nan'))"), _PLAIN),
    "infinite weight": (_net("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.weight, float('inf'))"), _PLAIN),
    "infinite bias": (_net("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.bias, float('-inf'))"), _PLAIN),
    "huge weight": (_net("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.weight, 3e38)"), _PLAIN),
    "tiny weight": (_net("self.m0(x0)", _CONV, "nn.init.constant_(self.m0.weight, 1e-40)"), _PLAIN),
    "zero weight": (_net("self.m0(x0)", _CONV, "nn.init.zeros_(self.m0.weight)"), _PLAIN),
    "rank 7": (_net("torch.relu(x0) * 2 + x0"), Input((1, 2, 1, 2, 1, 2, 2))),
    "rank 7 inside": (_net("(x0.reshape(1, 2, 2, 2, 3, 3, 2) * 2).permute(6, 5, 4, 3, 2, 1, 0).flatten()"), _PLAIN),
    "rank 8 permute": (_net("x0.permute(7, 6, 5, 4, 3, 2, 1, 0) + 1"), Input((1, 2, 1, 2, 1, 2, 2, 1))),
    "no operator": (_net("x0"), _PLAIN),
    "no operator, twice": (_net("x0, x0"), _PLAIN),
    "constant alone": (_net("self.m0", 'self.register_buffer("m0", torch.ones(3))'), _PLAIN),
    "parameter alone": (_net("torch.softmax(self.m0, 0)", "self.m0 = nn.Parameter(torch.rand(3))"), _PLAIN),
    "input unused": (_net("torch.ones(2, 3) * 2"), _PLAIN),
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
