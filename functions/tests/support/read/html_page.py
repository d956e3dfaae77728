"""HTML pages of the read service, parsed."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """The tags of a page; checks that every tag that must be closed is."""

    VOID = ("meta", "link", "input", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]


def html(got) -> tuple[Page, str]:
    """The page in a response, parsed and as text. Checks the content type and the CSP."""
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in got.headers["content-security-policy"]
    text = got.data.decode()
    return Page(text), text
