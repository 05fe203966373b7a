"""A record of this machine: its tools, packages and known issues."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from safe_arm._compat.untested import Untested, untested
from safe_arm.core.versions import PACKAGES, installed, versions
from safe_arm.doctor.compiler_probes import model_converter, vela
from safe_arm.doctor.finding import EVERY_TARGET, Finding, Probed, concerns
from safe_arm.doctor.python_side import arm_backend, flatc, reference_model
from safe_arm.doctor.vulkan_probe import vulkan
from safe_arm.known_issues import KnownIssue, known_issues, release_of

SCHEMA_VERSION = 1
_LOWERING = "every lowering (serialiser), verification (reference model)"
_ON_VULKAN = "running VGF delegates on this machine (optional)"
Probe = Callable[[Path], Probed]
#: The probes in their order: the tool, the work and the targets that need it; the reference model's writes the graph
#: of the others.
_PROBES: tuple[tuple[str, str, tuple[str, ...], Probe], ...] = (
    ("ExecuTorch", "everything", EVERY_TARGET, lambda tiny: arm_backend()),
    ("flatc", "writing a .pte", EVERY_TARGET, lambda tiny: flatc()),
    ("TOSA reference model", _LOWERING, EVERY_TARGET, reference_model),
    ("Vela", "ethos-u targets", ("ethos-u",), vela),
    ("model-converter", "target vgf", ("vgf",), model_converter),
    ("Vulkan", _ON_VULKAN, (), vulkan),
)
#: Packages that some targets alone need, by our names for them.
_OF_TARGETS = {"ethos-u-vela": ("ethos-u",), "model-converter": ("vgf",)}


@dataclass(frozen=True)
class Diagnosis:
    """The packages that are installed, the tools that run, and the known issues.

    Attributes:
        target: the target asked about, None for all.
        versions: the versions of the packages that the target needs, by name; empty for one that is not installed.
        findings: one for each tool that the target needs; without a target, one for every tool.
        untested: the packages among them in a version that was not tested, which blocks nothing.
        issues: the known issues of the installed ExecuTorch.
    """

    target: str | None
    versions: dict[str, str]
    findings: tuple[Finding, ...]
    untested: tuple[Untested, ...]
    issues: tuple[KnownIssue, ...]

    @property
    def ok(self) -> bool:
        """True if nothing blocks the target."""
        return not any(finding.blocks(self.target) for finding in self.findings)

    def as_json(self, output: bool) -> dict[str, Any]:
        """Return it as plain data.

        Args:
            output: with the tools' output.
        """
        tools = []
        for finding in self.findings:
            tool = {**asdict(finding), "blocks": finding.blocks(self.target)}
            if not output:
                del tool["output"]
            tools.append(tool)
        issues = [{"id": i.id, "title": i.title, "we_do": i.we_do} for i in self.issues]
        return {
            "schema_version": SCHEMA_VERSION,
            "ok": self.ok,
            "target": self.target,
            "versions": self.versions,
            "untested": [asdict(each) for each in self.untested],
            "tools": tools,
            "known_issues": issues,
        }


def examine(target: str | None, step: Callable[[str], object]) -> Diagnosis:
    """Run every tool that a target needs and look up the known issues of the installed packages.

    Args:
        target: one of ``TARGETS``, None for all and for what is optional.
        step: called with the name of the next tool.
    """
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        for name, needed_for, needed_by, probe in _PROBES:
            if concerns(target, needed_by):
                step(name)
                probed = vars(probe(Path(folder, "tiny.tosa")))
                findings.append(
                    Finding(name, needed_for=needed_for, needed_by=needed_by, **probed)
                )
    relevant = {}
    for name, version in versions().items():
        if concerns(target, _OF_TARGETS.get(name, EVERY_TARGET)):
            relevant[name] = version
    # The tool that runs may come from elsewhere than the package.
    for finding in findings:
        if finding.name in relevant and finding.version:
            relevant[finding.name] = finding.version
    return Diagnosis(
        target, relevant, tuple(findings), untested(relevant), issues_here()
    )


def issues_here() -> tuple[KnownIssue, ...]:
    """Return the known issues of the installed ExecuTorch, but those that need another version of something else."""
    here = installed("executorch")
    if not here:
        return ()
    release = release_of(here)
    issues = []
    for issue in known_issues():
        applies = issue.bites(release)
        if applies and issue.only_with:
            requirement = Requirement(issue.only_with)
            other = installed(PACKAGES.get(requirement.name, requirement.name))
            specifier = requirement.specifier
            applies = bool(other) and specifier.contains(other, prereleases=True)
        if applies:
            issues.append(issue)
    return tuple(issues)
