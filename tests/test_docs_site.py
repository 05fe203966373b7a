"""The built docs: no dead link, nothing of another machine, and each task within three clicks of the front page."""

import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from browser import chromium
from interpreter import ROOT

pytestmark = pytest.mark.docs

SITE = ROOT / "out" / "site"
#: What a reader wants, the links to click from the front page, and a piece of the answer.
TASKS = (
    ("see why relu_3 is on the CPU", "On the CPU", "aten_relu_default_3, refused, S1"),
    ("turn verification off", "Turn verification off", "--no-verify"),
    ("use my own quantiser", "Your own quantiser", "class HeadInFloat(SafeTOSAQuantizer)"),
    ("delegate a refused island", "On the CPU > reject or propagate", 'non_fuseable="propagate"'),
    ("know why a ReLU cannot be fused", "What each correction does", "shared 0.03294 -37"),
    ("fail a pull request that delegates less", "In CI", "--against baseline.json"),
    ("keep one layer in float", "Every command, option and exit status > export", "--keep-float"),
    ("send a bug upstream", "The export crashes > Reports for upstream", "safe-arm issues --upstream"),
    ("stay within 2 MiB of SRAM", "Does it fit > Limits", "--max-sram 2M"),
    ("know what verify=True raises", "The Python API > SafeArmPartitioner", "a negative tolerance"),
)
#: Attributes by which a page loads something, or leads somewhere.
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("use", "href")}


@dataclass
class Page(HTMLParser):
    """The links, ids and text of one page."""

    path: Path
    loads: list[str] = field(default_factory=list)
    leads: list[tuple[str, str]] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    text: str = ""
    links: list[tuple[str, str]] = field(default_factory=list)
    _within: int = 0
    _open: tuple[str, int] | None = None

    def __post_init__(self):
        super().__init__()
        self.feed(self.path.read_text())

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self._within += tag == "article"
        if "id" in named:
            self.ids[named["id"]] = len(self.text)
        for name, value in attrs:
            if (tag, name) in LOADS and named.get("rel") != "canonical":
                self.loads.append(value)
        if tag == "a" and "href" in named:
            self.leads.append((self.path.name, named["href"]))
            self._open = (named["href"], len(self.text))

    def handle_endtag(self, tag):
        self._within -= tag == "article"
        if tag == "a" and self._open and self._within:
            href, start = self._open
            self.links.append((flat(self.text[start:]), href))
            self._open = None

    def handle_data(self, data):
        self.text += data if self._within else ""


def flat(text):
    return " ".join(text.split())


@cache
def page(path):
    return Page(path)


def built():
    found = sorted(SITE.rglob("*.html"))
    assert len(found) > 30, "make docs"
    return found


def target(start, href):
    """The file and the id that a link leads to."""
    address, name = urldefrag(href)
    return (start.parent / unquote(address)).resolve() if address else start, unquote(name)


def is_elsewhere(href):
    return re.match(r"[a-z]+:|//", href) is not None


def test_every_link_leads_to_a_page_and_a_place_in_it():
    dead = []
    for path in built():
        if path.name == "404.html":  # its links are absolute, to wherever the site will be
            continue
        for _, href in page(path).leads:
            if is_elsewhere(href):
                continue
            file, name = target(path, href)
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file() or (name and file.suffix == ".html" and name not in page(file).ids):
                dead.append(f"{path.relative_to(SITE)}: {href}")
    assert dead == []


def test_nothing_is_loaded_from_another_machine():
    found = [f"{path.name}: {each}" for path in built() for each in page(path).loads if is_elsewhere(each)]
    found += [str(path) for path in SITE.rglob("*.css") if re.search(r"url\([\"']?(https?:)?//", path.read_text())]
    assert found == []


def test_what_pages_show_is_there():
    gone = []
    for path in built():
        for each in page(path).loads:
            if path.name != "404.html" and not each.startswith("data:") and not target(path, each)[0].is_file():
                gone.append(f"{path.name}: {each}")
    assert gone == []


@pytest.mark.parametrize(("task", "clicks", "answer"), TASKS, ids=[task for task, _, _ in TASKS])
def test_a_task_is_found_by_three_clicks_at_most(task, clicks, answer):
    path, name = SITE / "index.html", ""
    assert len(clicks.split(" > ")) <= 3
    for click in clicks.split(" > "):
        hrefs = [href for text, href in page(path).links if text.lower() == click.lower()]
        assert hrefs, f"{path.name} has no link {click!r}: {[text for text, _ in page(path).links]}"
        path, name = target(path, hrefs[0])
    assert flat(answer) in flat(page(path).text[page(path).ids.get(name, 0) :])


@pytest.fixture(scope="module")
def offline():
    """A page of a browser without a network."""
    with chromium() as browser:
        yield browser.new_context(offline=True, viewport={"width": 1300, "height": 900}).new_page()


@pytest.mark.parametrize("name", ["index", "corrections", "reference/python", "how-to/on-the-cpu", "known-issues"])
def test_it_opens_from_disk_with_the_network_off(name, offline):
    asked, errors = [], []
    offline.on("request", lambda request: asked.append(request.url))
    offline.on("pageerror", lambda error: errors.append(str(error)))
    offline.goto((SITE / f"{name}.html").as_uri())
    assert [each for each in asked if not each.startswith(("file:", "data:"))] == []
    assert errors == []
    broken = "pictures => pictures.filter(each => each.naturalWidth == 0).map(each => each.src)"
    assert offline.eval_on_selector_all("article img", broken) == []
    assert offline.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_search_works_from_disk(offline):
    offline.goto((SITE / "index.html").as_uri())
    offline.fill("input.md-search__input", "requantise")
    offline.wait_for_selector(".md-search-result__article")
    assert offline.locator(".md-search-result__article").count() > 1


#: Tables of the article that are wider than the room for them, so that the last columns are only seen by scrolling.
CUT = """() => [...document.querySelectorAll('.md-typeset__scrollwrap')]
    .filter(each => each.scrollWidth > each.clientWidth + 2)
    .map(each => each.querySelector('th').innerText)"""


def test_no_table_is_cut_at_the_edge_of_the_page(offline):
    cut = {}
    for path in built():
        offline.goto(path.as_uri())
        tables = offline.evaluate(CUT)
        if tables:
            cut[str(path.relative_to(SITE))] = tables
    assert cut == {}


def test_a_name_of_the_api_is_no_list_of_names():
    """The page takes ``worst, mean: ...`` in a docstring for a name ``worst,`` of the type ``mean``."""
    text = (SITE / "reference" / "python.html").read_text()
    assert re.findall(r">(\w+,)</span></code></b>", text) == []
