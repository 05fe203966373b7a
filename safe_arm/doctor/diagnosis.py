"""Everything the doctor knows about this machine, as one record."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from safe_arm._compat.untested import Untested, untested
from safe_arm.core.versions import PACKAGES, installed, versions
from safe_arm.doctor.compiler_probes import model_converter, vela
from safe_arm.doctor.finding import EVERY_TARGET, Finding, concerns
from safe_arm.doctor.python_side import arm_backend, flatc, reference_model
from safe_arm.doctor.vulkan_probe import vulkan
from safe_arm.known_issues import KnownIssue, known_issues, release_of

SCHEMA_VERSION = 1
#: What is run, in this order, and the targets that need it; the reference model's probe writes the others' graph.
_PROBES: tuple[tuple[str, Callable[[Path], Finding], tuple[str, ...]], ...] = (
    ("ExecuTorch", lambda tiny: arm_backend(), EVERY_TARGET),
    ("flatc", lambda tiny: flatc(), EVERY_TARGET),
    ("TOSA reference model", reference_model, EVERY_TARGET),
    ("Vela", vela, ("ethos-u",)),
    ("model-converter", model_converter, ("vgf",)),
    ("Vulkan", vulkan, ()),
)
#: Packages that some targets alone need, by our names for them.
_OF_TARGETS = {"ethos-u-vela": ("ethos-u",), "model-converter": ("vgf",)}


@dataclass(frozen=True)
class Diagnosis:
    """What is installed, what runs, and which known issues there are.

    Attributes:
        target: the target asked about, None for all.
        versions: by name, of what the target needs; empty where something is not installed.
        findings: one for each tool that the target needs, without a target one for each.
        untested: the packages among them in a version that was not tested; they stand in nobody's way.
        issues: the known issues of the installed ExecuTorch.
    """

    target: str | None
    versions: dict[str, str]
    findings: tuple[Finding, ...]
    untested: tuple[Untested, ...]
    issues: tuple[KnownIssue, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing stands in the way of the target."""
        return not any(finding.blocks(self.target) for finding in self.findings)

    def as_json(self, *, output: bool = False) -> dict[str, Any]:
        """Return it as plain data.

        Args:
            output: with what the tools printed.
        """
        tools = [
            {**asdict(f), "state": f.state.value, "blocks": f.blocks(self.target)}
            for f in self.findings
        ]
        tools = (
            tools
            if output
            else [{key: tool[key] for key in tool if key != "output"} for tool in tools]
        )
        issues = [{"id": i.id, "title": i.title, "we_do": i.we_do} for i in self.issues]
        head = {"schema_version": SCHEMA_VERSION, "ok": self.ok, "target": self.target}
        return {
            **head,
            "versions": self.versions,
            "untested": [asdict(each) for each in self.untested],
            "tools": tools,
            "known_issues": issues,
        }


def examine(
    target: str | None, step: Callable[[str], object] = lambda name: None
) -> Diagnosis:
    """Run every tool that a target needs and look up the known issues of what is installed.

    Args:
        target: one of ``TARGETS``, None for all and for what is optional.
        step: called with the name of what is run next.
    """
    with tempfile.TemporaryDirectory() as folder:
        findings = tuple(_findings(target, Path(folder, "tiny.tosa"), step))
    here = {
        name: text
        for name, text in versions().items()
        if concerns(target, _OF_TARGETS.get(name, EVERY_TARGET))
    }
    for (
        finding
    ) in findings:  # what runs, which may come from elsewhere than the package
        if finding.name in here and finding.version:
            here[finding.name] = finding.version
    return Diagnosis(target, here, findings, untested(here), issues_here())


def _findings(
    target: str | None, tiny: Path, step: Callable[[str], object]
) -> Iterator[Finding]:
    for name, probe, needed_by in _PROBES:
        if concerns(target, needed_by):
            step(name)
            yield probe(tiny)


def issues_here() -> tuple[KnownIssue, ...]:
    """Return the known issues of the installed ExecuTorch, but those that need another version of something else."""
    here = installed("executorch")
    if not here:
        return ()
    release = release_of(here)
    return tuple(
        issue for issue in known_issues() if issue.bites(release) and _applies(issue)
    )


def _applies(issue: KnownIssue) -> bool:
    if not issue.only_with:
        return True
    requirement = Requirement(issue.only_with)
    here = installed(PACKAGES.get(requirement.name, requirement.name))
    return bool(here) and requirement.specifier.contains(here, prereleases=True)
