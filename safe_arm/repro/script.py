"""The script of a repro: a module of what was demoted, and the stock flow that exports and lowers it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from string import Template
from typing import Any

import torch
from torch import Tensor

from safe_arm._compat.compile_specs import SpecSource
from safe_arm.repro.source_code import Constant, Source, comment, indented, literal, packed

#: Names the script uses itself.
TAKEN = frozenset(
    ("EXPECTED", "QUANTISED", "Unit", "WEIGHTS", "Path", "base64", "main", "packed", "root", "sys", "zlib")
)
TAKEN |= {"traceback", "annotate", "preserve_node_meta", "EdgeCompileConfig", "to_edge_transform_and_lower"}
TAKEN |= {"Delegates", "apart", "tosa_reference_model"}


def script(source: Source, spec: SpecSource, expected: str | None, *, beside: bool, differs: bool = False) -> str:
    """Return the text of a script.

    Args:
        source: the code of what it lowers.
        spec: the compile spec it lowers for.
        expected: the class of the exception that stock raises, None for any.
        beside: whether the weights are in a ``.pt`` file of the script's name.
        differs: stock may raise nothing; then what it made is run and compared. For a TOSA compile spec only.
    """
    constants = [line for item in source.constants.items() for line in _registered(*item, beside=beside)]
    helper = any("packed(" in line for line in constants)
    blocks = {
        "imports": _imports(source, spec, helper=helper, beside=beside, differs=differs),
        "expected": repr(expected),
        "marks": 'QUANTISED = {"_arm_annotation_info": {"quantized": True}}\n' * source.marked,
        "weights": _WEIGHTS * beside,
        "helper": _HELPER * helper,
        "functions": "".join(f"{function}\n\n\n" for function in source.functions),
        "init": "".join(f"{line}\n" for line in _init(constants)),
        "arguments": ", ".join(("self", *source.arguments.values())),
        "body": "\n".join(indented(source.body, 2)),
        "inputs": "\n".join(indented(_examples(source, _random if differs else _zeros), 2)),
        "delegates": _DELEGATES * differs,
        "seed": "    torch.manual_seed(0)\n" * differs,
        "end": _DIFFERS if differs else _LOWERS,
        "dynamic": _dynamic(source),
        "spec": spec.expression,
        "partitioner": spec.partitioner,
        "tracing": "with preserve_node_meta():\n            " * source.marked,
    }
    return _SCRIPT.substitute(blocks)


def _imports(source: Source, spec: SpecSource, *, helper: bool, beside: bool, differs: bool) -> str:
    used = "\n".join((*source.body, *source.functions))
    standard = {"sys", "traceback", *(name for name in ("math", "operator") if re.search(rf"\b{name}\.", used))}
    standard |= {"base64", "zlib"} if helper else set()
    first = [*(f"import {name}" for name in sorted(standard)), *["from pathlib import Path"] * beside]
    then = ["from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower"]
    then += ["from torch.fx.traceback import annotate, preserve_node_meta"] * source.marked
    tools = ["import tosa_reference_model"] * differs
    return "\n".join([*first, "", *tools, "import torch", *sorted([*spec.imports, *then])])


def _init(constants: list[str]) -> list[str]:
    lines = ["def __init__(self):", *indented(["super().__init__()", *constants], 1)]
    return [*indented(lines, 1), ""] if constants else []


def _registered(name: str, constant: Constant, *, beside: bool) -> list[str]:
    """The statement that gives the module a tensor, under its name in the user's module if that is another."""
    start, end = {
        "parameter": (f"self.{name} = torch.nn.Parameter(", ", requires_grad=False)"),
        "buffer": (f"self.register_buffer({name!r}, ", ")"),
        "constant": (f"self.{name} = ", ""),
    }[constant.kind]
    made = [f"WEIGHTS[{name!r}]"] if beside else packed(constant.value.detach())
    made[0] = start + made[0]
    made[-1] += end
    return [f"# {comment(constant.name)}", *made] if constant.name != name else made


def _examples(source: Source, example: Callable[[Tensor, tuple[int, ...]], str]) -> Iterator[str]:
    """Yield an expression for an example of each argument."""
    for node, name in source.arguments.items():
        value = node.meta["val"]
        if isinstance(value, Tensor):
            yield f"{example(value, tuple(map(_hint, value.shape)))},  # {name}"
        else:
            yield f"{literal(_hint(value))},  # {name}"


def _zeros(value: Tensor, shape: tuple[int, ...]) -> str:
    """Zeros: the lowering asks for shape, dtype and strides only."""
    if value.is_contiguous():
        return f"torch.zeros({shape}, dtype={value.dtype})"
    return f"{_strided(value, shape)}.zero_()"


def _random(value: Tensor, shape: tuple[int, ...]) -> str:
    """Every code of an integer type, floats in [-1, 1]."""
    if value.dtype.is_floating_point:
        drawn = f"torch.empty({shape}, dtype={value.dtype}).uniform_(-1, 1)"
    elif value.dtype == torch.bool:
        drawn = f"torch.rand({shape}) < 0.5"
    else:
        limits = torch.iinfo(value.dtype if value.dtype.itemsize < 4 else torch.int8)
        drawn = f"torch.randint({limits.min}, {limits.max + 1}, {shape}, dtype={value.dtype})"
    return drawn if value.is_contiguous() else f"{_strided(value, shape)}.copy_({drawn})"


def _strided(value: Tensor, shape: tuple[int, ...]) -> str:
    return f"torch.empty_strided({shape}, {tuple(map(_hint, value.stride()))}, dtype={value.dtype})"


def _hint(size: Any) -> Any:
    """The example value behind a symbolic number."""
    return size.node.hint if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) else size


def _dynamic(source: Source) -> str:
    """The argument for sizes that were dynamic in the user's export, empty if none was."""
    shapes = []
    for node in source.arguments:
        value = node.meta["val"]
        sizes = enumerate(value.shape if isinstance(value, Tensor) else ())
        shapes.append("{" + ", ".join(f"{at}: torch.export.Dim.AUTO" for at, s in sizes if _hint(s) is not s) + "}")
        if isinstance(value, torch.SymInt):
            shapes[-1] = "torch.export.Dim.AUTO"
    return f", dynamic_shapes=({', '.join(shapes)},)" if any("AUTO" in shape for shape in shapes) else ""


_WEIGHTS = 'WEIGHTS = torch.load(Path(__file__).with_suffix(".pt"), weights_only=True)\n'
_HELPER = '''def packed(text, dtype, shape):
    """A tensor from its bytes, deflated and in base64."""
    data = bytearray(zlib.decompress(base64.b64decode(text)))
    flat = torch.frombuffer(data, dtype=torch.uint8).view(dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


'''
#: How a script ends if stock has lowered what it should have failed on.
_LOWERS = """\
    print(f"did not reproduce: stock lowers it into {delegates} delegates")
    return 1
"""
#: How it ends if that may be: with a comparison.
_DIFFERS = """\
    if not delegates:
        print("did not reproduce: stock delegates nothing of it")
        return 1
    module, program = Unit().eval(), manager.exported_program()
    held = {**program.state_dict, **program.constants}
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    user = iter(inputs)
    placeholders = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    with torch.no_grad():
        expected = module(*inputs)
        given = (held[names[name]] if name in names else next(user) for name in placeholders)
        actual = Delegates(program.graph_module).run(*given)
    expected = expected if isinstance(expected, (list, tuple)) else (expected,)
    differ = [apart(*pair) for pair in zip(actual, expected, strict=True)]
    if any(differ):
        print(f"reproduced: {'; '.join(filter(None, differ))}")
        return 0
    print(f"did not reproduce: stock's {delegates} delegates compute what the graph computes")
    return 1
"""
_DELEGATES = '''\
class Delegates(torch.fx.Interpreter):
    """Runs a lowered program, its delegates in the TOSA reference model."""

    def call_function(self, target, args, kwargs):
        if str(target) != "executorch_call_delegate":
            return super().call_function(target, args, kwargs)
        lowered, *inputs = args
        arrays = [value.contiguous().numpy() for value in inputs]
        values, _ = tosa_reference_model.run(lowered.processed_bytes, arrays, verbosity="NONE")
        (results,) = next(node for node in lowered.original_module.graph.nodes if node.op == "output").args
        wanted = [result.meta["val"] for result in results]
        return [torch.from_numpy(v.copy()).reshape(w.shape).to(w.dtype) for v, w in zip(values, wanted)]


def apart(actual, expected):
    """What tells two tensors apart; nothing if rounding may: a value in the middle may go to either code."""
    if expected.is_floating_point():
        off = (actual - expected).abs() / expected.abs().max().clamp(min=1e-30)
        return f"{int((off > 1e-3).sum())} of {off.numel()} values differ" if (off > 1e-3).any() else ""
    off = (actual.long() - expected.long()).abs()
    wrong, worst = int((off > 0).sum()), int(off.max())
    rounding = worst <= 1 and wrong <= off.numel() // 100 and expected.dtype != torch.bool
    return "" if rounding or not wrong else f"{wrong} of {off.numel()} codes differ, by up to {worst}"


'''
_SCRIPT = Template('''\
$imports

# The class of the exception at the bottom of stock's failure; None for any.
EXPECTED = $expected
$marks$weights

$helper${functions}class Unit(torch.nn.Module):
$init    def forward($arguments):
$body


def root(error):
    """The exception that all others come from."""
    while (cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__)) is not None:
        error = cause
    return error


${delegates}def main():
${seed}    inputs = (
$inputs
    )
    try:
        ${tracing}program = torch.export.export(Unit().eval(), inputs$dynamic)
    except Exception as error:
        traceback.print_exc()
        print(f"did not reproduce: torch.export fails already: {type(error).__name__}: {error}")
        return 1
    try:
        spec = $spec
        manager = to_edge_transform_and_lower(
            program, partitioner=[$partitioner(spec)], compile_config=EdgeCompileConfig(_check_ir_validity=False)
        )
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        found, message = type(root(error)).__name__, " ".join(str(root(error)).split())
        if EXPECTED in (None, found):
            print(f"reproduced: {found}: {message}")
            return 0
        print(f"did not reproduce: expected {EXPECTED}, stock raises {found}: {message}")
        return 1
    delegates = sum(str(node.target) == "executorch_call_delegate" for node in manager.exported_program().graph.nodes)
${end}

if __name__ == "__main__":
    sys.exit(main())
''')
