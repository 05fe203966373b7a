"""A script for every demotion and every refusal: that part, alone, and the stock flow that fails or is wrong on it."""

from __future__ import annotations

import hashlib
import platform
import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from executorch.exir.backend.partitioner import DelegationSpec
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.compile_specs import SpecSource, spec_source, tosa_spec_source
from safe_arm.core.errors import ToolError, UsageError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.failure import Failure
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.programs import held_names
from safe_arm.core.source_line import source_line
from safe_arm.core.versions import installed, versions
from safe_arm.partitioner.checks import Refusal
from safe_arm.partitioner.demotion import Demotion
from safe_arm.partitioner.proposal import Proposal
from safe_arm.partitioner.session import Observer
from safe_arm.partitioner.trials import Trials
from safe_arm.partitioner.weights import weights_of
from safe_arm.repro.script import TAKEN, script
from safe_arm.repro.shrink import part_to_repeat
from safe_arm.repro.source_code import Constant, bytes_of, comment, source_of

#: Up to this many bytes of weights stand in the script itself, more in a file beside it.
EMBEDDED = 64 * 1024
#: How much of a traceback the header quotes, in lines, and of a line, in characters.
TRACEBACK = 24
WIDEST = 400


@dataclass(frozen=True)
class Origin:
    """Where the nodes come from.

    Attributes:
        program: the edge program they belong to.
        state: its parameters and buffers by name.
        delegation_spec: the backend they were meant for and its compile specs.
        profile: its TOSA specification.
    """

    program: ExportedProgram
    state: Mapping[str, Tensor]
    delegation_spec: DelegationSpec
    profile: str = ""


@dataclass(frozen=True)
class ScriptWriter(Observer):
    """Leaves a script for every demotion, and for every refusal of a check one that shows what stock makes of it.

    Attributes:
        directory: where the scripts go.
        delegation_spec: the backend and its compile specs.
        profile: its TOSA specification.
        float_borders: whether the profile lets floats cross the border of a delegate.
    """

    directory: Path
    delegation_spec: DelegationSpec
    profile: str
    float_borders: bool

    def demoted(
        self, demotion: Demotion, proposal: Proposal, trials: Trials
    ) -> Path | None:
        """Leave a script that repeats a demotion, with as much beside it as that takes."""
        nodes = list(demotion.nodes)
        if demotion.stage != "verify":  # What was measured was measured alone.
            nodes = part_to_repeat(
                demotion, proposal, trials, float_borders=self.float_borders
            )
        return self._write(demotion, nodes, proposal.program)

    def refused(
        self, refusals: Sequence[Refusal], program: ExportedProgram
    ) -> Mapping[Node, Path]:
        """Leave a script for each refusal of a check."""
        order = {
            node: index
            for index, node in enumerate(call_functions(program.graph_module))
        }
        scripts: dict[Node, Path] = {}
        for refusal in refusals:
            nodes = sorted(
                (node for node in refusal.nodes if node in order), key=order.__getitem__
            )
            if (path := self._write(refusal, nodes, program)) is not None:
                scripts.update(dict.fromkeys(refusal.nodes, path))
        return scripts

    def _write(
        self, refusal: Refusal, nodes: Sequence[Node], program: ExportedProgram
    ) -> Path | None:
        origin = Origin(
            program, weights_of(program)[0], self.delegation_spec, self.profile
        )
        return try_write_repro(self.directory, refusal, nodes, origin)


def checked_directory(path: str | Path | None) -> Path | None:
    """Return the directory for the scripts, which need not exist.

    Raises:
        UsageError: it is something else, or something else is in its way.
    """
    if path is None:
        return None
    directory = Path(path)
    nearest = next(
        (place for place in (directory, *directory.parents) if place.exists()), None
    )
    if nearest is not None and not nearest.is_dir():
        raise UsageError(
            f"repro_dir {str(directory)!r} cannot be a directory: {str(nearest)!r} is a file"
        )
    return directory


def try_write_repro(
    directory: Path, demotion: Refusal, nodes: Sequence[Node], origin: Origin
) -> Path | None:
    """Write a script as ``write_repro`` does, named after the operator; warn and return None if that fails.

    No export dies of its repro.
    """
    ops = [op_name(node) or node.name for node in demotion.nodes]
    kernel = next(
        (op for op in ops if not op.startswith("quantized_decomposed::")), ops[0]
    )
    name = re.sub(r"\W", "", kernel.split("::")[-1], flags=re.ASCII).strip("_")
    path = attempted(write_repro, directory, name, demotion, nodes, origin)
    if isinstance(path, Caught):
        warnings.warn(
            f"no repro of {name} could be written: {path.reason}", stacklevel=2
        )
        return None
    return path


def write_repro(
    directory: Path, name: str, demotion: Refusal, nodes: Sequence[Node], origin: Origin
) -> Path:
    """Write a script that lowers what was demoted or refused, alone, with stock ExecuTorch.

    After a crash it needs torch and executorch only, and exits 0 if stock fails with the same exception class, else 1.
    What stock lowers without a word is lowered for a bare TOSA profile and run in the reference model: the script needs
    tosa-tools too, and exits 0 if stock fails or computes something else than the graph. The same demotion gives the
    same bytes in the same file, another one another file.

    Args:
        directory: where it goes; made if it is not there.
        name: how the file's name begins; a digest of what it does follows.
        demotion: what was demoted, and the failure; or what was refused by a check.
        nodes: what the script lowers, in graph order: what was demoted and what it takes to make that fail.
        origin: where they come from.

    Returns:
        The script. Weights of more than ``EMBEDDED`` bytes are in a ``.pt`` file beside it.

    Raises:
        ValueError: something in the graph has no source form.
        OSError: the directory cannot be written.
    """
    if differs := is_silent(demotion):
        spec = tosa_spec_source(_shown_in(demotion, origin.profile))
    else:
        spec = spec_source(
            origin.delegation_spec.backend_id, origin.delegation_spec.compile_specs
        )
    source = source_of(nodes, _constants(origin), {*TAKEN, *spec.names})
    beside = (
        sum(constant.value.nbytes for constant in source.constants.values()) > EMBEDDED
    )
    expected = None if differs else _expected(_failure(demotion))
    code = script(source, spec, expected, beside=beside, differs=differs)
    digest = hashlib.sha256(code.encode())
    for constant in source.constants.values() if beside else ():
        digest.update(bytes_of(constant.value))
    path = directory / f"{name}-{digest.hexdigest()[:10]}.py"
    directory.mkdir(parents=True, exist_ok=True)
    if beside:
        weights = {
            name: constant.value.detach().clone()
            for name, constant in source.constants.items()
        }
        torch.save(weights, path.with_suffix(".pt"))
    command = _with_input_kept(_failure(demotion).tool, path)
    path.write_text(
        f"{_header(demotion, nodes, spec, command)}\n{code}", encoding="utf-8"
    )
    return path


def is_silent(demotion: Refusal) -> bool:
    """Whether stock lowers what was refused or demoted and says nothing, as far as we know."""
    return (
        not isinstance(demotion, Demotion)
        or demotion.stage == "verify"
        or demotion.failure.silent
    )


def _failure(demotion: Refusal) -> Failure:
    return (
        demotion.failure
        if isinstance(demotion, Demotion)
        else Failure("", demotion.reason)
    )


def _shown_in(demotion: Refusal, profile: str) -> str:
    """Return the profile that shows it: what a check refuses, stock refuses by itself where there are no floats."""
    if isinstance(demotion, Demotion) or "FP" in profile.split("+"):
        return profile
    return f"TOSA-1.0+INT+FP{'+int16' * ('int16' in profile)}"


def _expected(failure: Failure) -> str | None:
    """The class of the exception; None for a failing tool, which stock runs otherwise and says otherwise."""
    name = failure.message.split(":")[0]
    return None if name == ToolError.__name__ else name


def _constants(origin: Origin) -> Callable[[Node], Constant | None]:
    """Return what tells the constant a placeholder of the program holds."""
    program, state = origin.program, origin.state
    names, signature = held_names(program), program.graph_signature
    kinds = dict.fromkeys(signature.inputs_to_parameters, "parameter")
    kinds |= dict.fromkeys(signature.inputs_to_buffers, "buffer")

    def constant_of(node: Node) -> Constant | None:
        if (
            node.op != "placeholder"
            or node.graph is not program.graph
            or node.name not in names
        ):
            return None
        kind, name = kinds.get(node.name, "constant"), names[node.name]
        return Constant(
            kind, name, state[name] if name in state else program.constants[name]
        )

    return constant_of


# The header: comments, so that no text of the user's can do anything.


def _header(
    demotion: Refusal, nodes: Sequence[Node], spec: SpecSource, command: str
) -> str:
    failure = _failure(demotion)
    company = len(nodes) > len(demotion.nodes)
    places = dict.fromkeys(filter(None, map(source_line, demotion.nodes)))
    verb = "Demoted: " if isinstance(demotion, Demotion) else "Refused: "
    lines = [
        *(_ABOUT_DIFFERENCE if is_silent(demotion) else _ABOUT_FAILURE),
        "",
        f"{verb} {', '.join(dict.fromkeys(op_name(n) or n.name for n in demotion.nodes))}",
        *(f"Code:     {place}" for place in places),
        *(
            [
                "          It lowers alone; the operators beside it are here because it fails in their company."
            ]
            * company
        ),
        f"Reason:   {demotion.reason}",
        *([f"Command:  {command}"] if command else []),
        f"Versions: {', '.join(_versions(spec))}",
        *(
            []
            if is_silent(demotion)
            else ["", "What failed when it was demoted:", *_cause(failure.details)]
        ),
    ]
    return "".join(f"# {comment(_steady(line))}".rstrip() + "\n" for line in lines)


_ABOUT_FAILURE = (
    "This script lowers part of a model alone, with stock ExecuTorch, on which its Arm backend failed.",
    "It needs torch and executorch. Exit status: 0 if the failure is reproduced, 1 if not.",
)
_ABOUT_DIFFERENCE = (
    "This script lowers part of a model alone, with stock ExecuTorch, and runs it in the TOSA reference model.",
    "It needs torch, executorch and tosa-tools. Exit status: 0 if stock fails or computes something else, 1 if not.",
)


def _cause(details: str) -> list[str]:
    """The last lines of the traceback of the exception that the others come from."""
    first = re.split(
        r"^(?:The above exception was|During handling of the above)",
        details,
        flags=re.MULTILINE,
    )[0]
    lines = [line for line in first.rstrip().splitlines() if line.strip(" ^~")]
    return [
        f"    {line if len(line) <= WIDEST else f'{line[:WIDEST]}...'}"
        for line in lines[-TRACEBACK:]
    ]


def _versions(spec: SpecSource) -> Iterator[str]:
    yield f"safe_arm {versions()['safe_arm']}"
    for package in filter(
        None, ("executorch", "torch", "torchao", "tosa-tools", spec.package)
    ):
        yield f"{package} {installed(package) or 'not installed'}"
    yield f"Python {platform.python_version()}"
    yield platform.platform()


def _steady(text: str) -> str:
    """Take out what differs from run to run and place to place: addresses, temporary directories, package paths."""
    text = re.sub(r'(?<=File ").*[/\\]site-packages[/\\]', "", text)
    return re.sub(r"\b(0x)[0-9a-fA-F]{6,}\b|\b(tmp)[a-z0-9_]{8}\b", r"\1\2...", text)


def _with_input_kept(tool: ToolError | None, script: Path) -> str:
    """Put the input of a failed tool beside the script; return the command that repeats the failure from there."""
    if tool is None or not tool.data:
        return tool.command if tool else ""
    kept = script.with_suffix(Path(tool.file_name).suffix)
    kept.write_bytes(tool.data)
    words = shlex.split(tool.command)
    return shlex.join(
        w.replace(tool.file_name, kept.name, 1) if w.startswith(tool.file_name) else w
        for w in words
    )
