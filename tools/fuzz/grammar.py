"""Random nets and configurations, as hypothesis strategies."""

import re

from hypothesis import strategies as st

from tools.fuzz import layers, operators
from tools.fuzz.cases import NUMBERS, Case, Config, Input
from tools.fuzz.net_source import NetSource

_of = operators.of_template
#: What adds to a net, and how often; the first is what shrinking prefers.
STEPS = (
    *(_of(operators.ACTIVATIONS),) * 5,
    *(_of(operators.UNARY),) * 3,
    *(_of(operators.BINARY),) * 5,
    *(_of(operators.JOINS),) * 4,
    *(_of(operators.VIEWS),) * 5,
    *(_of(operators.POOLS),) * 2,
    *(_of(operators.REDUCTIONS),) * 3,
    *(_of(operators.CONSTANTS),) * 2,
    *(_of(operators.WRITES),) * 2,
    *(_of(operators.STATES),) * 2,
    _of(operators.PRODUCTS),
    _of(operators.INDEXED),
    _of(operators.ODD),
    operators.parameters_alone,
    *(layers.convolution,) * 6,
    *(layers.linear,) * 3,
    *(layers.shared,) * 2,
    layers.norm,
    layers.embedding,
    layers.recurrent,
)
#: Odd ones, and now and then none.
SIZES = (4, 6, 1, 3, 5, 2, 8, 7)
#: By rank of the first input, how often it has it.
RANKS = (4, 4, 4, 4, 3, 3, 2, 2, 1, 5, 0, 6)
PROFILES = ("INT", "INT+FP", "INT", "INT+FP", "INT", "INT+FP", "FP")
KINDS = ("int8", "int8", "int8", "int8-127", "int8-127", "int8-tensor", "a16w8", "a8w4", "uint8-io", "float")
#: What is looked at besides; most cases have none, because each costs another lowering.
PROPERTIES = (*((),) * 14, ("again",), ("again",), ("twice",), ("profiles",), ("profiles",), ("stock-bytes",))
LONGEST = 6


def _rarely(draw, times: int) -> bool:
    """True one time in so many; hypothesis prefers the ends of a range, so this is in its middle."""
    return 400 <= draw(st.integers(0, 999)) < 400 + 1000 // times


def _shape(draw, first: tuple[int, ...] | None = None) -> tuple[int, ...]:
    if first is not None and draw(st.integers(0, 2)) < 2:
        return first
    rank = draw(st.sampled_from(RANKS))
    shape = [draw(st.sampled_from(SIZES if rank < 5 else SIZES[2:6])) for _ in range(rank)]
    if rank > 1 and draw(st.integers(0, 3)) < 3:
        shape[0] = 1
    if rank and _rarely(draw, 100):
        shape[-1] = 0
    return tuple(shape)


@st.composite
def nets(draw) -> tuple[str, tuple[Input, ...]]:
    """Draw the source of a net and its inputs."""
    net = NetSource(draw)
    first = _shape(draw)
    net.add_input(Input(first, high=draw(st.sampled_from((1.0, 1.0, 4.0)))))
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        kind = draw(st.integers(0, 9))
        if kind == 5:
            net.add_input(Input((1, draw(st.integers(1, 4))), "int64", 8))
        elif kind == 3:
            net.add_input(Input(first, "bool"))
        else:
            net.add_input(Input(_shape(draw, first)))
    for number in range(LONGEST):
        if number and draw(st.sampled_from(range(7))) == 0:
            break
        draw(st.sampled_from(STEPS))(net)
    return net.text(_outputs(draw, net)), tuple(net.inputs)


def _outputs(draw, net: NetSource) -> list[str]:
    """What nobody uses, and now and then an inner value, an input as it came, or an output twice."""
    computed = net.values[len(net.inputs) :]
    outputs = [v.name for v in computed if not v.used][-4:] or [net.values[-1].name]
    if computed and _rarely(draw, 4):
        outputs.append(draw(st.sampled_from(computed)).name)
    if _rarely(draw, 8):
        outputs.append(draw(st.sampled_from(net.values[: len(net.inputs)])).name)
    if _rarely(draw, 8):
        outputs.append(outputs[0])
    return outputs


@st.composite
def configs(draw, source: str) -> Config:
    """Draw how a net is lowered."""
    profile, numbers = draw(st.sampled_from(PROFILES)), draw(st.sampled_from(KINDS))
    if profile == "FP" or numbers == "float":
        profile, numbers = ("FP" if profile == "FP" else "INT+FP"), "float"
    found = re.findall(r"self\.(m\d+) = nn\.(?:Conv|Lin)", source)
    island = draw(st.sampled_from(found)) if found and _rarely(draw, 12) and NUMBERS[numbers] is not None else ""
    return Config(
        profile,
        numbers,
        draw(st.sampled_from(("reject", "propagate"))),
        io=_rarely(draw, 5),
        island=island,
        dynamic=_rarely(draw, 12),
        methods=2 if _rarely(draw, 25) else 1,
        properties=draw(st.sampled_from(PROPERTIES)),
    )


@st.composite
def cases(draw) -> Case:
    """Draw a net, how it is lowered, and the seed of its numbers."""
    source, inputs = draw(nets())
    config = draw(configs(source))
    if len(source) % 4 == 0:  # So torch's own modules call theirs; a graph that is copied may name it anew.
        source = re.sub(r"\bx0\b", "input", source)
    return Case(source, inputs, config, draw(st.integers(0, 2**16)))
