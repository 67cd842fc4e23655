"""Convert texts of models and users to Markdown. Special characters are escaped, and secrets are
removed.
"""

import html
import re
from collections.abc import Sequence

from agentfly_core.runs import episodes
from agentfly_core.runs.episodes import Piece
from agentfly_core.system.formats.text import CONTROL, clip, redact

# an underscore within a word is plain text in Markdown
SPECIAL = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
BARS = "▁▂▃▄▅▆▇█"
COLUMNS = 100


def plain(text: str, longest: int = 600) -> str:
    """Return a text as one line of Markdown with special characters escaped: `plain("a|b")` is
    `a\\|b`. A text of more than `longest` bytes is shortened.
    """
    # cut before escaping, because half of an escape would escape the next letter
    visible = CONTROL.sub("?", clip(" ".join(text.split()), longest))
    escaped = SPECIAL.sub(lambda match: f"\\{match[0]}", " ".join(visible.split()))
    return html.escape(escaped, quote=False)


def marked(pieces: Sequence[Piece], longest: int) -> str:
    """Format pieces of a conversation as lines of at most COLUMNS columns.

    Each line begins with a character for the kind of its piece, such as `>` for sampled text. If
    all lines together have more than `longest` bytes, the middle is cut. Secrets are removed.
    """
    # secrets are removed before lines are wrapped, because wrapping could split a secret
    safe = [Piece(piece.kind, redact(piece.text)) for piece in pieces]
    return clip("\n".join(episodes.marked(safe, COLUMNS)), longest)


def fenced(text: str) -> str:
    """Format a text as a fenced code block. Its fence is longer than any fence in the text."""
    longest_run = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest_run + 1)
    return f"{fence}\n{text}\n{fence}"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table from the titles of its columns and its rows of cells."""
    ruled = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in ruled)
