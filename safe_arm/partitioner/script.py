"""The script of a repro: a module of what was demoted, and the stock flow that exports and lowers it."""

from __future__ import annotations

import re
from string import Template
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm._compat.compile_specs import SpecSource
from safe_arm.partitioner.source_code import Constant, Source, comment, indented, literal, packed

#: Names the script uses itself.
TAKEN = frozenset(
    ("EXPECTED", "QUANTISED", "Unit", "WEIGHTS", "Path", "base64", "main", "packed", "root", "sys", "zlib")
)
TAKEN |= {"traceback", "annotate", "preserve_node_meta", "EdgeCompileConfig", "to_edge_transform_and_lower"}


def script(source: Source, spec: SpecSource, expected: str | None, *, beside: bool) -> str:
    """Return the text of a script.

    Args:
        source: the code of what it lowers.
        spec: the compile spec it lowers for.
        expected: the class of the exception that stock raises, None for any.
        beside: whether the weights are in a ``.pt`` file of the script's name.
    """
    constants = [line for item in source.constants.items() for line in _registered(*item, beside=beside)]
    helper = any("packed(" in line for line in constants)
    blocks = {
        "imports": _imports(source, spec, helper=helper, beside=beside),
        "expected": repr(expected),
        "marks": 'QUANTISED = {"_arm_annotation_info": {"quantized": True}}\n' * source.marked,
        "weights": _WEIGHTS * beside,
        "helper": _HELPER * helper,
        "functions": "".join(f"{function}\n\n\n" for function in source.functions),
        "init": "".join(f"{line}\n" for line in _init(constants)),
        "arguments": ", ".join(("self", *source.arguments.values())),
        "body": "\n".join(indented(source.body, 2)),
        "inputs": "\n".join(indented((f"{_example(node)},  # {name}" for node, name in source.arguments.items()), 2)),
        "dynamic": _dynamic(source),
        "spec": spec.expression,
        "partitioner": spec.partitioner,
        "tracing": "with preserve_node_meta():\n            " * source.marked,
    }
    return _SCRIPT.substitute(blocks)


def _imports(source: Source, spec: SpecSource, *, helper: bool, beside: bool) -> str:
    used = "\n".join((*source.body, *source.functions))
    standard = {"sys", "traceback", *(name for name in ("math", "operator") if re.search(rf"\b{name}\.", used))}
    standard |= {"base64", "zlib"} if helper else set()
    first = [*(f"import {name}" for name in sorted(standard)), *["from pathlib import Path"] * beside]
    then = ["from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower"]
    then += ["from torch.fx.traceback import annotate, preserve_node_meta"] * source.marked
    return "\n".join([*first, "", "import torch", *sorted([*spec.imports, *then])])


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


def _example(node: Node) -> str:
    """An expression for an example of a value; the lowering asks for shape, dtype and strides only."""
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        return literal(_hint(value))
    shape = tuple(map(_hint, value.shape))
    if value.is_contiguous():
        return f"torch.zeros({shape}, dtype={value.dtype})"
    return f"torch.empty_strided({shape}, {tuple(map(_hint, value.stride()))}, dtype={value.dtype}).zero_()"


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


def main():
    inputs = (
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
    print(f"did not reproduce: stock lowers it into {delegates} delegates")
    return 1


if __name__ == "__main__":
    sys.exit(main())
''')
