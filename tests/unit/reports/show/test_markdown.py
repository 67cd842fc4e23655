"""Text of models and problems is shown unchanged and cannot break the page."""

import pytest
from markdown_it import MarkdownIt

from agentfly_core.reports.show.markdown import fenced, marked, plain, table
from agentfly_core.runs.episodes import Piece

MARKDOWN = MarkdownIt("commonmark").enable("table")
HOSTILE = "a|b <script>x</script> **c** `d` [e](http://f) ![g](h) __i__ ~~j~~ \\ &amp; k_l"


def html(text: str) -> str:
    rendered: str = MARKDOWN.render(text)
    return rendered


def test_a_text_in_a_table_is_one_cell_that_shows_it_as_it_is() -> None:
    shown = html(table(("name", "why"), [(plain(HOSTILE), plain("two\nlines\x1b[0m"))]))
    assert shown.count("<td>") == 2
    assert (
        "<td>a|b &lt;script&gt;x&lt;/script&gt; **c** `d` [e](http://f) ![g](h) __i__ ~~j~~ \\ "
        "&amp;amp; k_l</td>" in shown
    )
    assert "<td>two lines?[0m</td>" in shown


def test_a_name_with_an_underscore_is_readable_markdown() -> None:
    assert plain("unreadable_calls") == "unreadable_calls"


@pytest.mark.parametrize("text", ["```\n# no heading", "````", "</pre><h1>x</h1>", "~~~"])
def test_text_of_a_model_does_not_end_its_block(text: str) -> None:
    shown = html(f"{fenced(text)}\n\nafter")
    assert shown.startswith("<pre><code>") and shown.endswith("</code></pre>\n<p>after</p>\n")
    assert "<h1>" not in shown


def test_long_lines_are_cut_and_long_texts_lose_their_middle() -> None:
    text = marked([Piece("sampled", "x" * 250), Piece("read", "end")], 10_000)
    assert [len(line) for line in text.splitlines()] == [90, 90, 76, 5]
    assert text.splitlines()[-1] == "| end"
    short = marked([Piece("sampled", f"first {'x' * 5000} last")], 200)
    assert short.startswith("> first") and short.endswith("last")
    assert "bytes omitted" in short and len(short) < 300


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_API_KEY", "s3cr3t_*value*")
    sampled = marked([Piece("sampled", f"{'x' * 80} s3cr3t_*value*")], 1000)
    for text in (plain("the key s3cr3t_*value*"), sampled):
        assert "s3cr3t" not in text and "SEARCH_API_KEY" in text


def test_text_that_is_invalid_unicode_can_be_written() -> None:
    for text in (plain("a\ud800"), marked([Piece("sampled", "a\ud800")], 100)):
        text.encode()
