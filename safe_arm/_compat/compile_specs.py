"""A delegate's serialised compile specs as the Python that makes them: what a user writes, where that is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from safe_arm._compat.marker import unmarked
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


@dataclass(frozen=True)
class SpecSource:
    """How a script comes by a compile spec and its partitioner.

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
        return tuple(
            name.strip()
            for line in self.imports
            for name in line.split(" import ")[1].split(",")
        )


_BACKENDS: dict[str, tuple[type, str, str, str]] = {
    "VgfBackend": (
        VgfCompileSpec,
        "VgfPartitioner",
        "vgf",
        "ai_ml_sdk_model_converter",
    ),
    "EthosUBackend": (EthosUCompileSpec, "EthosUPartitioner", "ethosu", "ethos-u-vela"),
    "TOSABackend": (TosaCompileSpec, "TOSAPartitioner", "tosa.partitioner", ""),
}


def spec_source(backend_id: str, compile_specs: Sequence[CompileSpec]) -> SpecSource:
    """Return the Python for a backend's compile specs.

    Args:
        backend_id: the backend.
        compile_specs: what ``preprocess`` gets; our own marker is left out.
    """
    stock = unmarked(compile_specs)
    spec_class, partitioner, module, package = _BACKENDS[backend_id]
    name, root = spec_class.__name__, "executorch.backends.arm"
    if backend_id == "TOSABackend":
        imports = [
            f"from {root}.tosa.compile_spec import {name}",
            f"from {root}.{module} import {partitioner}",
        ]
    else:
        imports = [f"from {root}.{module} import {name}, {partitioner}"]
    args, kwargs = _arguments(
        spec_class, {spec.key: _bytes(spec).decode() for spec in stock}
    )
    if _makes(spec_class, args, kwargs, stock):
        given = [
            *map(repr, args),
            *(f"{key}={value!r}" for key, value in kwargs.items()),
        ]
        return SpecSource(
            tuple(imports), f"{name}({', '.join(given)})", partitioner, package
        )
    # Something that no constructor takes was set on it.
    from_list = "_from_list" if hasattr(spec_class, "_from_list") else "from_list"
    entries = ", ".join(f"CompileSpec({spec.key!r}, {spec.value!r})" for spec in stock)
    imports.append(
        "from executorch.exir.backend.compile_spec_schema import CompileSpec"
    )
    return SpecSource(
        tuple(imports), f"{name}.{from_list}([{entries}])", partitioner, package
    )


def tosa_spec_source(profile: str) -> SpecSource:
    """Return the Python for the compile spec of a bare TOSA profile, whose delegates the reference model runs."""
    spec = TosaCompileSpec(profile)
    return spec_source("TOSABackend", _entries(spec))


def _entries(spec: ArmCompileSpec) -> list[CompileSpec]:
    """Serialise a compile spec, under whichever name a release does it."""
    return (getattr(spec, "_to_list", None) or spec.to_list)()


def _arguments(
    spec_class: type, values: dict[str, str]
) -> tuple[list[str], dict[str, Any]]:
    """The constructor's arguments behind serialised values."""
    flags = values["compile_flags"].split(" ") if values.get("compile_flags") else []
    if spec_class is not EthosUCompileSpec:
        return [values["tosa_spec"]], {"compiler_flags": flags} if flags else {}
    named = {flag: name for name in _VELA for flag in flags if flag.startswith(name)}
    own = {_VELA[name]: flag.removeprefix(name) for flag, name in named.items()}
    extra = [
        flag for flag in flags if flag not in named and flag != "--output-format=raw"
    ]
    return [own.pop("target", "")], {**own, **({"extra_flags": extra} if extra else {})}


def _makes(
    spec_class: type, args: list[str], kwargs: dict[str, Any], wanted: list[CompileSpec]
) -> bool:
    """Whether a constructor, called so, makes exactly these compile specs."""
    entries = attempted(
        lambda: [
            (entry.key, _bytes(entry))
            for entry in _entries(spec_class(*args, **kwargs))
        ]
    )
    return entries == [(entry.key, _bytes(entry)) for entry in wanted]


def _bytes(spec: CompileSpec) -> bytes:
    """A compile spec's value; 1.4 has text in some places."""
    return spec.value.encode() if isinstance(spec.value, str) else bytes(spec.value)


def target_of(spec: ArmCompileSpec) -> str:
    """Return what a compile spec object compiles for: ``vgf``, ``tosa`` or an Ethos-U's name."""
    if isinstance(spec, VgfCompileSpec):
        return "vgf"
    return spec.target if isinstance(spec, EthosUCompileSpec) else "tosa"
