"""A Markdown extension: links to files outside the documentation become plain text on the site."""

import re
from pathlib import Path
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

DOCS = Path(__file__).parent


def leaves(target: str) -> bool:
    """Whether a relative link leads out of the folder of the documentation."""
    path = re.sub(r"^(\.\./)+", "", target.partition("#")[0])
    return not re.match(r"\w+:", target) and path != target and not (DOCS / path).exists()


class SourceLinks(Treeprocessor):
    """Replaces such links of a page by their text."""

    def run(self, root: Element) -> None:
        for link in root.iter("a"):
            if leaves(link.get("href", "")):
                link.tag = "span"
                link.attrib.clear()


class SourceLinksExtension(Extension):
    """Runs SourceLinks after links are parsed."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(SourceLinks(md), "source_links", 1)


def makeExtension(**settings: object) -> SourceLinksExtension:
    return SourceLinksExtension(**settings)
