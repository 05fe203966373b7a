"""Write a script for every demotion and refusal: that part alone, and the stock flow that fails or is wrong on it."""

from __future__ import annotations

import hashlib
import platform
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from executorch.exir.backend.partitioner import DelegationSpec
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.compile_specs import SpecSource, spec_source, tosa_spec_source
from safe_arm.core.errors import ToolError, UsageError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.failure import Failure
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.programs import held_names
from safe_arm.core.source_line import source_line
from safe_arm.core.templates import templates
from safe_arm.core.tool_input import with_input_at
from safe_arm.core.versions import installed, versions
from safe_arm.partitioner.checks import Refusal
from safe_arm.partitioner.demotion import Demotion
from safe_arm.partitioner.proposal import Proposal
from safe_arm.partitioner.session import Observer
from safe_arm.partitioner.trials import Trials
from safe_arm.partitioner.weights import weights_of
from safe_arm.repro.script import TAKEN, script
from safe_arm.repro.shrink import part_to_repeat
from safe_arm.repro.source_code import (
    Constant,
    ConstantOf,
    bytes_of,
    comment,
    source_of,
)

#: Maximum number of bytes of weights in the script itself; more are in a file beside it.
EMBEDDED = 64 * 1024
#: Maximum number of lines of a traceback that the header quotes, and of characters of a line.
TRACEBACK = 24
WIDEST = 400


@dataclass(frozen=True)
class ScriptWriter(Observer):
    """An observer that writes a script for every demotion and for every refusal of a check.

    Attributes:
        directory: the directory of the scripts.
        delegation_spec: the backend and its compile specs, without those that the stock partitioner adds for a single
            tag, as VGF's does from 1.6 on: in a script it adds them itself.
        profile: its TOSA specification.
        float_borders: true if the profile lets floats cross the border of a delegate.
    """

    directory: Path
    delegation_spec: DelegationSpec
    profile: str
    float_borders: bool

    def demoted(
        self,
        demotion: Demotion,
        proposal: Proposal,
        trials: Trials,
    ) -> Path | None:
        """Write a script that repeats a demotion, with the operators beside it that this needs."""
        nodes = list(demotion.nodes)
        if demotion.stage != "verify":  # Verification measured these nodes alone.
            nodes = part_to_repeat(
                demotion, proposal, trials, float_borders=self.float_borders
            )
        return self._write(demotion, nodes, proposal.program)

    def refused(
        self, refusals: Sequence[Refusal], program: ExportedProgram
    ) -> Mapping[Node, Path]:
        """Write a script for each refusal of a check."""
        scripts: dict[Node, Path] = {}
        in_graph_order = list(call_functions(program.graph_module))
        for refusal in refusals:
            refused = set(refusal.nodes)
            nodes = [node for node in in_graph_order if node in refused]
            path = self._write(refusal, nodes, program)
            if path is not None:
                scripts.update(dict.fromkeys(refusal.nodes, path))
        return scripts

    def _write(
        self,
        refusal: Refusal,
        nodes: Sequence[Node],
        program: ExportedProgram,
    ) -> Path | None:
        """Write a script as ``write`` does; warn and return None if that fails, which does not end the export."""
        path = attempted(self.write, refusal, nodes, program)
        if isinstance(path, Caught):
            name = _file_name(refusal)
            warnings.warn(
                f"no repro of {name} could be written: {path.reason}", stacklevel=2
            )
            return None
        return path

    def write(
        self,
        refusal: Refusal,
        nodes: Sequence[Node],
        program: ExportedProgram,
    ) -> Path:
        """Write a script that lowers demoted or refused nodes, alone, with stock ExecuTorch.

        After a crash it needs torch and executorch only, and exits 0 if stock fails with the same exception class,
        else 1. Nodes that stock lowers without an error are lowered for a bare TOSA profile and run in the reference
        model: the script needs tosa-tools too, and exits 0 if stock fails or computes something else than the graph.
        The same demotion gives the same bytes in the same file, another one another file.

        Args:
            refusal: the demoted nodes and the failure, or the nodes that a check refused.
            nodes: the nodes that the script lowers, in graph order: the demoted ones and those it takes to make them
                fail.
            program: the edge program they belong to.

        Returns:
            The script. Weights of more than ``EMBEDDED`` bytes are in a ``.pt`` file beside it.

        Raises:
            ValueError: something in the graph has no source form.
            OSError: the directory cannot be written.
        """
        failure = Failure("", refusal.reason)
        if isinstance(refusal, Demotion):
            failure = refusal.failure
        silent = is_silent(refusal)
        if silent:
            expected = None
            spec = tosa_spec_source(_profile_that_shows(refusal, self.profile))
        else:
            backend = self.delegation_spec
            expected = _expected(failure)
            spec = spec_source(backend.backend_id, backend.compile_specs)
        source = source_of(nodes, _constants(program), {*TAKEN, *spec.names})
        weights = {}
        size = 0
        for key, constant in source.constants.items():
            weights[key] = constant.value
            size += constant.value.nbytes
        beside = size > EMBEDDED
        code = script(source, spec, expected, beside=beside, differs=silent)
        digest = hashlib.sha256(code.encode())
        if beside:
            for value in weights.values():
                digest.update(bytes_of(value))
        name = f"{_file_name(refusal)}-{digest.hexdigest()[:10]}.py"
        path = self.directory / name
        self.directory.mkdir(parents=True, exist_ok=True)
        if beside:
            copies = {key: value.detach().clone() for key, value in weights.items()}
            torch.save(copies, path.with_suffix(".pt"))
        command = _with_input_kept(failure.tool, path)
        header = _header(refusal, nodes, spec, command)
        path.write_text(f"{header}\n{code}", encoding="utf-8")
        return path


def checked_directory(path: str | Path | None) -> Path | None:
    """Return the directory for the scripts, which need not exist.

    Raises:
        UsageError: it is something else, or something else is in its way.
    """
    if path is None:
        return None
    directory = Path(path)
    for place in (directory, *directory.parents):
        if place.is_dir():
            break
        if place.exists():
            raise UsageError(
                f"repro_dir {str(directory)!r} cannot be a directory: {str(place)!r} is a file"
            )
    return directory


def _file_name(demotion: Refusal) -> str:
    """Return the name of the first operator that computes, else of the first, in letters for a file's name."""
    ops = _ops(demotion)
    for op in ops:
        if not op.startswith("quantized_decomposed::"):
            break
    else:
        op = ops[0]
    return re.sub(r"\W", "", op.split("::")[-1], flags=re.ASCII).strip("_")


def _ops(demotion: Refusal) -> list[str]:
    return [op_name(node) or node.name for node in demotion.nodes]


def is_silent(demotion: Refusal) -> bool:
    """Tell whether stock lowers the refused or demoted nodes without an error, as far as we know."""
    if not isinstance(demotion, Demotion) or demotion.stage == "verify":
        return True
    return demotion.failure.silent


def _profile_that_shows(demotion: Refusal, profile: str) -> str:
    """Return the profile that shows a fault; without floats, stock itself refuses the nodes that our checks refuse."""
    if isinstance(demotion, Demotion) or "FP" in profile.split("+"):
        return profile
    return "TOSA-1.0+INT+FP+int16" if "int16" in profile else "TOSA-1.0+INT+FP"


def _expected(failure: Failure) -> str | None:
    """Return the class of the exception; None for a failing tool, which fails in another way under stock."""
    name = failure.message.split(":")[0]
    return None if name == ToolError.__name__ else name


def _constants(program: ExportedProgram) -> ConstantOf:
    """Return a function that returns the constant that a placeholder of the program holds."""
    state, _ = weights_of(program)
    names = held_names(program)
    signature = program.graph_signature
    kinds = dict.fromkeys(signature.inputs_to_parameters, "parameter")
    kinds |= dict.fromkeys(signature.inputs_to_buffers, "buffer")

    def constant_of(node: Node) -> Constant | None:
        if node.op != "placeholder" or node.graph is not program.graph:
            return None
        if node.name not in names:
            return None
        kind = kinds.get(node.name, "constant")
        name = names[node.name]
        value = state.get(name)
        if value is None:
            value = program.constants[name]
        return Constant(kind, name, value)

    return constant_of


# The header: comments, so that no text of the user's can do anything.


def _header(
    demotion: Refusal,
    nodes: Sequence[Node],
    spec: SpecSource,
    command: str,
) -> str:
    places = filter(None, map(source_line, demotion.nodes))
    cause = []
    silent = is_silent(demotion)
    if isinstance(demotion, Demotion) and not silent:
        cause = _cause(demotion.failure.details)
    template = templates("safe_arm.repro", "").get_template("header.txt.j2")
    text = template.render(
        silent=silent,
        verb="Demoted" if isinstance(demotion, Demotion) else "Refused",
        operators=dict.fromkeys(_ops(demotion)),
        places=map(comment, dict.fromkeys(places)),
        in_company=len(nodes) > len(demotion.nodes),
        reason=comment(demotion.reason),
        command=comment(command),
        versions=_versions(spec),
        cause=list(map(comment, cause)),
    )
    return "".join([f"# {_steady(line)}".rstrip() + "\n" for line in text.split("\n")])


def _cause(details: str) -> list[str]:
    """Return the last lines of the traceback of the exception that the others come from."""
    chain = re.compile(
        r"^(?:The above exception was|During handling of the above)", re.MULTILINE
    )
    first = chain.split(details)[0]
    lines = [line for line in first.rstrip().splitlines() if line.strip(" ^~")]
    quoted = []
    for line in lines[-TRACEBACK:]:
        if len(line) > WIDEST:
            line = f"{line[:WIDEST]}..."
        quoted.append(f"    {line}")
    return quoted


def _versions(spec: SpecSource) -> Iterator[str]:
    yield f"safe_arm {versions()['safe_arm']}"
    for package in ("executorch", "torch", "torchao", "tosa-tools", spec.package):
        if package:
            yield f"{package} {installed(package) or 'not installed'}"
    yield f"Python {platform.python_version()}"
    yield platform.platform()


def _steady(text: str) -> str:
    """Remove text that differs from run to run and place to place: addresses, temporary directories, package paths."""
    text = re.sub(r'(?<=File ").*[/\\]site-packages[/\\]', "", text)
    return re.sub(r"\b(0x)[0-9a-fA-F]{6,}\b|\b(tmp)[a-z0-9_]{8}\b", r"\1\2...", text)


def _with_input_kept(tool: ToolError | None, script: Path) -> str:
    """Put the input of a failed tool beside the script; return the command that repeats the failure from there."""
    if tool is None:
        return ""
    if not tool.data:
        return tool.command
    kept = script.with_suffix(Path(tool.file_name).suffix)
    kept.write_bytes(tool.data)
    return with_input_at(tool, kept.name)
