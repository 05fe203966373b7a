"""A drop-in safety layer over ExecuTorch's Arm backend: VGF, Ethos-U and TOSA.

Importing this package loads neither torch nor executorch; its names do, on first use.
"""

TYPE_CHECKING = False  # importing typing takes longer than all the rest of this
if TYPE_CHECKING:
    from safe_arm.core.errors import SafeArmError, UsageError
    from safe_arm.passes.manager import CORRECTIONS, SafeArmPassManager
    from safe_arm.quantizer.safe_quantizers import (
        SafeEthosUQuantizer,
        SafeTOSAQuantizer,
        SafeVgfQuantizer,
    )
    from safe_arm.safe_partitioner import SafeArmPartitioner
    from safe_arm.verification.whole import verify

__version__ = "0.1.0"

_HOME = {
    "CORRECTIONS": "safe_arm.passes.manager",
    "SafeArmError": "safe_arm.core.errors",
    "SafeArmPartitioner": "safe_arm.safe_partitioner",
    "SafeArmPassManager": "safe_arm.passes.manager",
    "SafeEthosUQuantizer": "safe_arm.quantizer.safe_quantizers",
    "SafeTOSAQuantizer": "safe_arm.quantizer.safe_quantizers",
    "SafeVgfQuantizer": "safe_arm.quantizer.safe_quantizers",
    "UsageError": "safe_arm.core.errors",
    "verify": "safe_arm.verification.whole",
}

__all__ = [
    "CORRECTIONS",
    "SafeArmError",
    "SafeArmPartitioner",
    "SafeArmPassManager",
    "SafeEthosUQuantizer",
    "SafeTOSAQuantizer",
    "SafeVgfQuantizer",
    "UsageError",
    "verify",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(
            f"module 'safe_arm' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    from importlib import import_module

    if name in ("SafeArmError", "UsageError"):  # which tell what is missing
        module = import_module(_HOME[name])
    else:
        from safe_arm._compat.installation import executorch_imported

        with executorch_imported():
            module = import_module(_HOME[name])
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
