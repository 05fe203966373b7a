"""The built packages: which files they hold, what their metadata says, and that the wheel needs no checkout."""

import ast
import functools
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import metadata_hook
import pytest
import tomllib
from interpreter import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from trove_classifiers import classifiers

import safe_arm
from safe_arm._compat.tested_releases import PINNED

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME = f"safe_arm-{safe_arm.__version__}"
#: In the metadata's folder beside the licences' files.
METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt")
#: What is imported in other lanes: benchmarks' architectures in `nets`, their cycles beside LiteRT's in `litert`.
OF_OTHER_LANES = {"ai_edge_litert", "ai_edge_quantizer", "cosmic_ray", "litert_torch", "timm", "torchvision"}
OF_OTHER_LANES |= {"transformers", "ultralytics"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of an sdist and of the wheel that was built from it, not from the checkout."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    return zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl")


@pytest.fixture(scope="module")
def sdist(built):
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    return Parser().parsestr(wheel.read(f"{NAME}.dist-info/METADATA").decode())


def tracked(folder):
    """What is committed or about to be; all there is where the checkout is no repository."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", folder], cwd=ROOT, capture_output=True)
    if listed.returncode == 0:
        return {name for name in listed.stdout.decode().splitlines() if (ROOT / name).is_file()}
    files = (file for file in (ROOT / folder).rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(ROOT).as_posix() for file in files}


def included():
    """What pyproject.toml takes into the wheel from outside the package, by its place there."""
    forced = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"].get("force-include", {})
    for source, place in forced.items():
        for name in tracked(source):
            yield str(Path(place) / Path(name).relative_to(source)) if (ROOT / source).is_dir() else place


def test_the_wheel_holds_the_package_and_its_metadata_to_the_file(wheel):
    patterns = PROJECT["project"]["license-files"]
    licences = {file.relative_to(ROOT).as_posix() for pattern in patterns for file in ROOT.glob(pattern)}
    left_out = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    expected = {*tracked("safe_arm"), *included()}.difference(left_out)
    expected |= {f"{NAME}.dist-info/{name}" for name in METADATA}
    expected |= {f"{NAME}.dist-info/licenses/{name}" for name in licences}
    assert set(wheel.namelist()) == expected
    assert len(licences) == 3


def test_other_people_s_scripts_come_with_their_licences(wheel, metadata):
    assert metadata["License-Expression"] == "BSD-3-Clause AND MIT"
    scripts = {name for name in wheel.namelist() if "/vendor/" in name and name.endswith(".js")}
    assert len(scripts) == 2
    for name in scripts:
        licence = re.sub(r"(\.min)?\.js$", ".LICENSE.txt", name)
        text = wheel.read(f"{NAME}.dist-info/licenses/{licence}").decode()
        assert "Permission is hereby granted, free of charge" in text


def test_the_sdist_holds_the_sources_the_tests_and_no_pictures(sdist):
    names = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    assert {name for name in names if name.endswith((".png", ".jpg", ".gif"))} == set()
    assert {name for name in names if name.startswith("docs/speed/")} == set()
    assert tracked("safe_arm") | tracked("tests") | {"LICENSE", "README.md", "tools/metadata_hook.py"} <= names


def test_the_wheel_works_where_the_checkout_is_not(wheel, tmp_path):
    script = (
        f"import sys; sys.path.insert(0, {wheel.filename!r}); import safe_arm; "
        f"from safe_arm.known_issues import known_issues; "
        "from safe_arm.report.html import html; from safe_arm.core.record import Report; "
        "assert '.whl' in safe_arm.__file__, safe_arm.__file__; assert known_issues(); "
        "from safe_arm.known_issues.upstream_pages import page_text, upstream_pages; "
        "assert '## Patch' in page_text(upstream_pages()['S1']); "
        "assert html(Report((), 0, 0)); print('ok')"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "ok", result.stderr


def test_links_of_the_readme_are_absolute_where_an_index_shows_it(metadata):
    text = metadata.get_payload()
    assert "](docs/" in (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []
    blobs = [each for each in targets if "/blob/HEAD/" in each or "/raw/HEAD/" in each]
    paths = [re.split(r"/(?:blob|raw)/HEAD/", each)[1].partition("#")[0] for each in blobs]
    assert len(paths) >= 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("text", "absolute"),
    [
        pytest.param("[a](docs/a.md#b)", "[a](https://x/blob/HEAD/docs/a.md#b)", id="page"),
        pytest.param("![a, b](docs/a.jpg)", "![a, b](https://x/raw/HEAD/docs/a.jpg)", id="picture"),
        pytest.param("[a](https://y/z)", "[a](https://y/z)", id="absolute"),
        pytest.param("[a](#b)", "[a](#b)", id="anchor"),
        pytest.param("[a](mailto:b)", "[a](mailto:b)", id="mail"),
    ],
)
def test_how_links_are_made_absolute(text, absolute):
    assert metadata_hook.absolute(text, "https://x") == absolute


def test_the_metadata_names_its_pages_systems_and_each_python(metadata):
    given = metadata.get_all("Classifier")
    assert [each for each in given if each not in classifiers] == []
    assert "Operating System :: POSIX :: Linux" in given
    pythons = [each.rpartition(" ")[2] for each in given if re.search(r":: 3\.\d+$", each)]
    low, high = re.search(r"<3\.(\d+),>=3\.(\d+)", metadata["Requires-Python"]).group(2, 1)
    assert pythons == [f"3.{minor}" for minor in range(int(low), int(high))]
    urls = dict(each.split(", ") for each in metadata.get_all("Project-URL"))
    assert {"Source", "Documentation", "Changelog", "Issues"} <= urls.keys()
    pages = [url.partition("/blob/HEAD/")[2] for url in urls.values() if "/blob/HEAD/" in url]
    assert [page for page in pages if not (ROOT / page).exists()] == []


def imported(file):
    """The packages that a file imports or would like to."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip":
            yield node.args[0].value


#: What looks at every file of every package that is installed.
brought_by = functools.cache(importlib.metadata.packages_distributions)


def required(extra=""):
    """The packages that are required without an extra, or with one and those that it names in turn."""
    project = PROJECT["project"]
    for line in project["optional-dependencies"][extra] if extra else project["dependencies"]:
        requirement = Requirement(line)
        if requirement.name == "safe-arm":
            for each in requirement.extras:
                yield from required(each)
        else:
            yield canonicalize_name(requirement.name)


@pytest.mark.skipif(importlib.metadata.version("executorch") != PINNED["executorch"], reason="not the main lane")
@pytest.mark.parametrize("folder", ["tests", "tools", "demo", "examples", "benchmarks"])
def test_dev_brings_all_that_is_imported(folder):
    own = {file.stem for each in ("tests", "tools", "benchmarks", "demo") for file in (ROOT / each).rglob("*.py")}
    own |= {"safe_arm", "tests", "tools", "benchmarks", "demo", *sys.stdlib_module_names}
    names = {name.partition(".")[0] for file in (ROOT / folder).rglob("*.py") for name in imported(file)}
    needed = {name: {canonicalize_name(each) for each in brought_by().get(name, ())} for name in names - own}
    here = {*required(), *required("dev")}
    assert {name for name, brings in needed.items() if not brings & here} - OF_OTHER_LANES == set()


def test_dev_brings_what_is_run_and_not_imported():
    text = "".join((ROOT / name).read_text() for name in ("Makefile", "tools/targets.mk", "CONTRIBUTING.md"))
    run = {"build": "-m build", "import-linter": "lint-imports", "mypy": "-m mypy"}
    run |= {"py-spy": "flame", "pytest-xdist": "-n 2", "ruff": "-m ruff"}
    assert [word for word in run.values() if word not in text] == []
    assert run.keys() <= set(required("dev"))
