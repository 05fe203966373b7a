"""The Python written for a compile spec makes the very same one."""

import pytest
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.vgf import VgfCompileSpec
from executorch.exir.backend.compile_spec_schema import CompileSpec
from lowering import RELEASE, tosa

from safe_arm import SafeArmPartitioner
from safe_arm._compat import compile_specs
from safe_arm._compat.compile_specs import spec_source
from safe_arm._compat.marker import marker, names_in
from safe_arm.passes.manager import KEEP_PROVENANCE

SPECS = {
    "tosa": ("TOSABackend", lambda: tosa("TOSA-1.0+INT+FP+int16")),
    "vgf": ("VgfBackend", lambda: VgfCompileSpec("TOSA-1.0+FP")),
    "vgf with flags": ("VgfBackend", lambda: VgfCompileSpec("TOSA-1.0+INT", ["--a", "--b=c"])),
    "ethos-u": ("EthosUBackend", lambda: EthosUCompileSpec("ethos-u55-128")),
    "ethos-u with all": (
        "EthosUBackend",
        lambda: EthosUCompileSpec("ethos-u85-256", "Ethos_U85_SYS_DRAM_Low", "Dedicated_Sram", ["--debug"], "my.ini"),
    ),
}


def listed(spec):
    return [(entry.key, entry.value) for entry in spec._to_list()]


def evaluated(source):
    scope = {}
    exec("\n".join(source.imports), scope)
    assert source.partitioner in scope
    assert set(source.names) <= set(scope)
    return eval(source.expression, scope)


@pytest.mark.parametrize("name", SPECS)
def test_what_a_constructor_takes_is_written_as_its_call(name):
    backend, make = SPECS[name]
    source = spec_source(backend, [*make()._to_list(), marker(("clamp",))])
    assert "_from_list" not in source.expression
    assert type(evaluated(source)) is type(make())
    assert listed(evaluated(source)) == listed(make())


class NextVgfCompileSpec(VgfCompileSpec):
    """A VGF compile spec with the arguments that it has from 1.6 on, and what they write."""

    def __init__(self, tosa_spec=None, compiler_flags=None, emit_debug_info=False, alias_buffer_mutations=False):
        super().__init__(tosa_spec, compiler_flags)
        self.emit_debug_info, self.alias_buffer_mutations = emit_debug_info, alias_buffer_mutations

    def _to_list(self):
        debug = [CompileSpec("vgf_emit_debug_info", b"True")] if self.emit_debug_info else []
        aliased = CompileSpec("alias_buffer_mutations", str(self.alias_buffer_mutations).encode())
        return [*super()._to_list(), *debug, aliased]


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({}, "NextVgfCompileSpec('TOSA-1.0+INT')"),
        ({"alias_buffer_mutations": True}, "NextVgfCompileSpec('TOSA-1.0+INT', alias_buffer_mutations=True)"),
        ({"emit_debug_info": True}, "NextVgfCompileSpec('TOSA-1.0+INT', emit_debug_info=True)"),
        (
            {"compiler_flags": ["--a"], "emit_debug_info": True, "alias_buffer_mutations": True},
            "NextVgfCompileSpec('TOSA-1.0+INT', compiler_flags=['--a'], emit_debug_info=True, "
            "alias_buffer_mutations=True)",
        ),
    ],
    ids=["none", "state", "debug", "all"],
)
def test_the_arguments_of_the_next_vgf_compile_spec_are_written(monkeypatch, options, written):
    backend = NextVgfCompileSpec, *compile_specs._BACKENDS["VgfBackend"][1:]
    monkeypatch.setitem(compile_specs._BACKENDS, "VgfBackend", backend)
    spec = NextVgfCompileSpec("TOSA-1.0+INT", **options)
    assert spec_source("VgfBackend", spec._to_list()).expression == written


@pytest.mark.parametrize("asks", [True, False])
def test_a_vgf_that_emits_debug_information_keeps_the_provenance(asks):
    spec = NextVgfCompileSpec("TOSA-1.0+INT", emit_debug_info=asks)
    names = names_in(SafeArmPartitioner(spec).delegation_spec.compile_specs)
    assert (KEEP_PROVENANCE in names) is asks


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 cannot serialise again what it read")
def test_anything_else_is_written_as_serialised(tmp_path):
    spec = VgfCompileSpec("TOSA-1.0+INT+FP").dump_intermediate_artifacts_to(str(tmp_path))
    source = spec_source("VgfBackend", spec._to_list())
    assert "_from_list" in source.expression
    assert listed(evaluated(source)) == listed(spec)
