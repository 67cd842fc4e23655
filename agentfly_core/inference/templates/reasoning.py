"""Split a reply into reasoning and visible text, and write such a reply.

The reasoning is at the beginning of the reply, between tags such as `<think>` and `</think>`.
"""

import re
from dataclasses import dataclass, replace

from agentfly_core.system.formats.text import THINK, THOUGHT_END


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """The tags around the reasoning of a reply, such as `<think>` and `</think>`.

    - `answer`: a regular expression for markup at the beginning of the visible text
    - `spaces`: the white space at three positions: after the opening tag, before the closing tag,
      and after the closing tag

    In the methods, `opened` means that the prompt already contains the opening tag.
    """

    open: str
    close: str
    answer: str = ""
    spaces: tuple[str, str, str] = ("\n", "\n", "\n\n")

    def begin(self, text: str, opened: bool) -> bool:
        """Whether the opening tag is at the start of the reply, or already in the prompt."""
        return opened or text.lstrip().startswith(self.open)

    def split(self, text: str, opened: bool) -> tuple[str, str]:
        """Return the reasoning and the visible text of a reply.

        With `opened`, the prompt already contains the opening tag.
        """
        before, after, behind = self.spaces
        reasoning, rest = "", text
        if self.begin(text, opened):
            inner, _, rest = text.lstrip().removeprefix(self.open).partition(self.close)
            reasoning = inner.removeprefix("" if opened else before).removesuffix(after)
            rest = rest.removeprefix(behind)
        return reasoning, re.sub(rf"\A(?:{self.answer})", "", rest)

    def joined(self, reasoning: str, rest: str, opened: bool) -> str:
        """Return the text of a reply with this reasoning and this visible text (`rest`).

        With `opened`, the prompt already contains the opening tag, so the text begins without it.
        """
        before, after, behind = self.spaces
        begin = "" if opened else f"{self.open}{before}"
        return f"{begin}{reasoning}{after}{self.close}{behind}{rest}"


MARKS = (
    ReasoningMarks(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        r"(?:<\|start\|>assistant)?<\|channel\|>(?:final|commentary)"
        r"(?: ?<\|constrain\|>\w+)?<\|message\|>",
        ("", "", ""),
    ),
    ReasoningMarks("<|channel>thought\n", "<channel|>"),
    ReasoningMarks("[THINK]", "[/THINK]"),
    ReasoningMarks(THINK, THOUGHT_END),
)
"""The reasoning tags of model families. The last entry is the default for other templates."""


def marks_of(template: str, rendered: str) -> ReasoningMarks:
    """Find the reasoning tags in `template`, the text of a chat template.

    `rendered` is a reply that the template rendered, with the reasoning "R0" and the visible text
    "A0". It shows which white space surrounds the tags.
    """
    marks = next((one for one in MARKS if one.open.strip() in template), MARKS[-1])
    match = re.search(
        rf"{re.escape(marks.open)}(\s*)R0(\s*){re.escape(marks.close)}(\s*)A0", rendered
    )
    return replace(marks, spaces=(match[1], match[2], match[3])) if match else marks
