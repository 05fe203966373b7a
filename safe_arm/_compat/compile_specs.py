"""Write a delegate's serialised compile specs as Python, as a user would write them where possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from safe_arm._compat.marker import unmarked
from safe_arm._compat.release_1_4 import value_bytes
from safe_arm._compat.upstream import (
    ArmCompileSpec,
    CompileSpec,
    EthosUCompileSpec,
    TosaCompileSpec,
    VgfCompileSpec,
)
from safe_arm.core.exceptions import attempted

#: Vela flags that the constructor of the Ethos-U compile spec adds, and its arguments for them.
_VELA = {
    "--accelerator-config=": "target",
    "--config=": "config_ini",
    "--system-config=": "system_config",
    "--memory-mode=": "memory_mode",
}
#: Keys of compile specs that a VGF compile spec writes from 1.6 on, and the arguments that set them.
_VGF = {
    "vgf_emit_debug_info": "emit_debug_info",
    "alias_buffer_mutations": "alias_buffer_mutations",
}


@dataclass(frozen=True)
class SpecSource:
    """The Python with which a script makes a compile spec and imports its partitioner.

    Attributes:
        imports: import statements.
        expression: makes the compile spec.
        partitioner: the name of the stock partitioner.
        package: the Python package of the tool behind the backend, empty for none.
    """

    imports: tuple[str, ...]
    expression: str
    partitioner: str
    package: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the imports bind."""
        names: list[str] = []
        for line in self.imports:
            names += line.split(" import ")[1].split(", ")
        return tuple(names)


_ARM = "executorch.backends.arm"
#: Class of the compile spec, import statements, partitioner and package of each backend.
_BACKENDS: dict[str, tuple[type[ArmCompileSpec], tuple[str, ...], str, str]] = {
    "VgfBackend": (
        VgfCompileSpec,
        (f"from {_ARM}.vgf import VgfCompileSpec, VgfPartitioner",),
        "VgfPartitioner",
        "ai_ml_sdk_model_converter",
    ),
    "EthosUBackend": (
        EthosUCompileSpec,
        (f"from {_ARM}.ethosu import EthosUCompileSpec, EthosUPartitioner",),
        "EthosUPartitioner",
        "ethos-u-vela",
    ),
    "TOSABackend": (
        TosaCompileSpec,
        (
            f"from {_ARM}.tosa.compile_spec import TosaCompileSpec",
            f"from {_ARM}.tosa.partitioner import TOSAPartitioner",
        ),
        "TOSAPartitioner",
        "",
    ),
}
_COMPILE_SPEC = "from executorch.exir.backend.compile_spec_schema import CompileSpec"


def spec_source(backend_id: str, compile_specs: Sequence[CompileSpec]) -> SpecSource:
    """Return the Python for a backend's compile specs.

    Args:
        backend_id: the backend.
        compile_specs: what ``preprocess`` gets; our own marker is left out.
    """
    stock = unmarked(compile_specs)
    spec_class, imports, partitioner, package = _BACKENDS[backend_id]
    name = spec_class.__name__
    values = {spec.key: value_bytes(spec).decode() for spec in stock}
    args, kwargs = _arguments(spec_class, values)
    made = attempted(lambda: _pairs(spec_class(*args, **kwargs)._to_list()))
    if made == _pairs(stock):
        arguments = [repr(value) for value in args]
        arguments += [f"{key}={value!r}" for key, value in kwargs.items()]
        expression = f"{name}({', '.join(arguments)})"
        return SpecSource(imports, expression, partitioner, package)
    # Something that no constructor takes was set on it.
    entries = ", ".join(f"CompileSpec({spec.key!r}, {spec.value!r})" for spec in stock)
    expression = f"{name}._from_list([{entries}])"
    return SpecSource((*imports, _COMPILE_SPEC), expression, partitioner, package)


def tosa_spec_source(profile: str) -> SpecSource:
    """Return the Python for the compile spec of a bare TOSA profile, whose delegates the reference model runs."""
    return spec_source("TOSABackend", TosaCompileSpec(profile)._to_list())


def _arguments(
    spec_class: type, values: dict[str, str]
) -> tuple[list[str], dict[str, Any]]:
    """Return the constructor's arguments that serialised values come from."""
    serialised = values.get("compile_flags")
    flags = serialised.split(" ") if serialised else []
    kwargs: dict[str, Any] = {}
    if spec_class is not EthosUCompileSpec:
        if flags:
            kwargs["compiler_flags"] = flags
        for key, argument in _VGF.items():
            if values.get(key) == "True":
                kwargs[argument] = True
        return [values["tosa_spec"]], kwargs
    by_argument = {}
    extra = []
    for flag in flags:
        prefix = f"{flag.partition('=')[0]}="
        if prefix in _VELA:
            by_argument[_VELA[prefix]] = flag.removeprefix(prefix)
        elif flag != "--output-format=raw":
            extra.append(flag)
    for argument in _VELA.values():
        if argument in by_argument:
            kwargs[argument] = by_argument[argument]
    if extra:
        kwargs["extra_flags"] = extra
    return [kwargs.pop("target", "")], kwargs


def _pairs(specs: list[CompileSpec]) -> list[tuple[str, bytes]]:
    return [(spec.key, value_bytes(spec)) for spec in specs]


def wants_debug_info(spec: ArmCompileSpec) -> bool:
    """Tell whether a compile spec asks for information about the origin of operators; VGF's from 1.6 on can."""
    if spec.tosa_debug_mode is not None:
        return True
    return bool(getattr(spec, "emit_debug_info", False))


def target_of(spec: ArmCompileSpec) -> str:
    """Return the target of a compile spec object: ``vgf``, ``tosa`` or an Ethos-U's name."""
    if isinstance(spec, VgfCompileSpec):
        return "vgf"
    return spec.target if isinstance(spec, EthosUCompileSpec) else "tosa"


def vela_flags(spec: ArmCompileSpec) -> tuple[str, ...]:
    """Return what a compile spec gives to Vela; nothing if it is for another compiler."""
    if not isinstance(spec, EthosUCompileSpec):
        return ()
    # ExecuTorch writes them in one line.
    return tuple(" ".join(spec.compiler_flags).split())
