"""The Python written for a compile spec makes the very same one."""

import pytest
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.vgf import VgfCompileSpec
from lowering import tosa

from safe_arm._compat.compile_specs import spec_source
from safe_arm._compat.marker import marker
from safe_arm._compat.tested_releases import executorch_version, parse

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


@pytest.mark.skipif(parse(executorch_version()) < (1, 5), reason="1.4 cannot serialise again what it read")
def test_anything_else_is_written_as_serialised(tmp_path):
    spec = VgfCompileSpec("TOSA-1.0+INT+FP").dump_intermediate_artifacts_to(str(tmp_path))
    source = spec_source("VgfBackend", spec._to_list())
    assert "_from_list" in source.expression
    assert listed(evaluated(source)) == listed(spec)
