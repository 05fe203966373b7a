"""The README with absolute links and the project's addresses, written into the metadata when the package is built.

A hook of hatchling's, of which nothing but hatchling is needed: the lanes are built without isolation.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Pages of the repository that package indexes link to, by the name of the link.
PAGES = {
    "Source": "",
    "Documentation": "/blob/HEAD/docs/index.md",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Known issues of ExecuTorch": "/blob/HEAD/docs/known-issues.md",
    "Issues": "/issues",
}
_LINK = re.compile(r"(!?)(\[[^\]]*\]\()(?!\w+:|#)([^)\s]+)\)")


class CustomMetadataHook(MetadataHookInterface):
    """Fills in ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both fields from the README and the repository's address in ``pyproject.toml``."""
        repository = self.config["repository"]
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository)}
        metadata["urls"] = {name: f"{repository}{page}" for name, page in PAGES.items()}


def absolute(text: str, repository: str) -> str:
    """Return Markdown whose relative links lead into a repository, those of pictures to the pictures themselves."""
    return _LINK.sub(
        lambda found: f"{found[1]}{found[2]}{repository}/{'raw' if found[1] else 'blob'}/HEAD/{found[3]})", text
    )
