"""A model's own chat template: its tokenizer's Jinja template, rendered as a chat server does."""

from __future__ import annotations

import copy
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Any, Literal

from agentfly_core.authoring.chat_template import ChatTemplate, ToolSchema
from agentfly_core.inference.templates.call_formats import FORMATS, FormatName
from agentfly_core.inference.templates.dialect import Markup, jinja_of, markup_of
from agentfly_core.inference.templates.jinja_renderer import JinjaRenderer, common_beginning
from agentfly_core.inference.templates.replies import ReplyReader
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.records.messages import reply_text
from agentfly_core.records.trajectory import BadCall, Message, Observation
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import before_stop, did_you_mean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MessageList = Sequence[Message | Observation]
NOT_VARIABLES = {"messages", "tools", "documents", "add_generation_prompt"}
SWITCHES = ("enable_thinking", "thinking")
"""Variables by which templates switch reasoning on and off."""
OTHER = "\U0010fffe"
"""A character that no template writes."""
QUESTION = Message("user", "?")


class ModelTemplate:
    """The chat template of a tokenizer, `template: model`.

    Prompts have the tokens of `apply_chat_template`, except that contents give no added tokens.
    Some templates render earlier messages differently at a later turn. Then the history `served`
    opens a new context, and `kept` appends to the old one. `variables` are the template's own. A
    template that inserts the current date needs a `date` such as 2026-01-31. `stop` are end tokens,
    by default the template's, and `calls` is the format of calls. `thinking_budget` is the largest
    number of tokens of reasoning, 0 for no limit.

    Raises ValueError for tokenizers and templates that cannot be used, and unknown variables.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        history: Literal["served", "kept"] = "served",
        calls: FormatName | Literal[""] = "",
        stop: tuple[str, ...] = (),
        date: str = "",
        train_reasoning: bool = True,
        thinking_budget: int = 0,
        variables: Mapping[str, Any] = {},
    ) -> None:
        self._tokenizer, self.history, self._variables = tokenizer, history, variables
        self.train_reasoning, self.thinking_budget = train_reasoning, thinking_budget
        self._switch = _switch(tokenizer, variables)
        given = {**variables, **_now(tokenizer, variables, date)}
        self.markup: Markup = markup_of(tokenizer, given, stop, calls)
        self._renderer = JinjaRenderer(tokenizer, given, self.markup.dialect)
        self._schemas = tuple[ToolSchema, ...]()
        self.stop_tokens = tuple(map(self._id, self.markup.stop))
        marks = self.markup.marks
        self.thought_close = self._id(marks.close) if thinking_budget else -1
        self.thought_end = self._renderer.tokens(marks.joined("", "", opened=True))
        """The tokens that end reasoning which is not finished."""
        self._reader = self._reader_of(self._renderer)
        if difference := self.difference([QUESTION, Message("assistant", "\n a"), QUESTION]):
            raise ValueError(
                f"template: with this tokenizer a prompt would differ from the served one "
                f"({difference}). Choose another model, or write a template for it."
            )

    @property
    def jinja(self) -> str:
        """The chat template for transformers and vLLM, with the variables of training."""
        names = {k: "none" if v is None else json.dumps(v) for k, v in self._variables.items()}
        settings = (f"{{%- set {name} = {value} -%}}\n" for name, value in names.items())
        return "".join(settings) + jinja_of(self._tokenizer)

    @property
    def reads_calls(self) -> bool:
        """Whether calls of tools can be read."""
        return self._reader.reads_calls

    def bound(self, tools: Sequence[ToolSchema], thinking: bool | None) -> ModelTemplate:
        """The template of a speaker with these tools; `thinking` switches reasoning on or off.

        Raises ValueError for tools if calls cannot be read, and for a template without a switch.
        """
        if tools and not self.reads_calls:
            raise ValueError(
                "template: the calls that this model's template writes cannot be read. Set "
                f"template.calls to one of {', '.join(FORMATS)}, or leave out the tools."
            )
        bound = copy.copy(self)
        bound._schemas = tuple(tools)
        if thinking is not None:
            if not self._switch:
                raise ValueError(
                    f"reply(thinking={thinking}): this model's template reads none of the "
                    f"variables {', '.join(SWITCHES)}. Leave it out."
                )
            bound._renderer = self._renderer.with_variables({self._switch: thinking})
        bound._reader = bound._reader_of(bound._renderer)
        return bound

    def open(self, messages: MessageList, tools: Sequence[ToolSchema]) -> tuple[int, ...]:
        """The whole prompt with the header of the next reply."""
        return self._renderer.tokens(self._renderer.text(messages, tools))

    def extend(
        self, reply: Sequence[int], read: MessageList, before: MessageList = ()
    ) -> tuple[int, ...] | None:
        """The tokens between `reply` and the next one; see ChatTemplate."""
        whole = self._renderer.text((*before, *read), self._schemas)
        prompt = self._renderer.text(before[:-1], self._schemas)
        end, shared = self._end_of_reply(whole, before, read), common_beginning(prompt, whole)
        if end < len(shared):
            return None
        tail = self._renderer.tokens(whole[end:])
        ended = bool(reply) and reply[-1] in self.stop_tokens
        if self.history == "served":
            close = self.markup.marks.close
            other_reasoning = (close in self._decode(reply)) != (close in whole[len(prompt) : end])
            other_end = ended and reply[-1] != tail[0]
            if shared != prompt or other_reasoning or other_end:
                return None
        return tail[1:] if ended else tail

    def fit(self, text: str, tokens: int) -> str:
        """The text in at most `tokens` tokens, its middle cut as `[... N bytes omitted ...]`."""
        return self._renderer.encoder.fit(text, tokens)

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """The reasoning, text and calls of a reply, wrong calls as BadCall."""
        ended = bool(reply) and reply[-1] in self.stop_tokens
        tokens = reply[:-1] if ended else reply
        message = self._reader.read(before_stop(self._decode(tokens), stop))
        try:  # a model's reply must not end the training
            self._renderer.text([QUESTION, message], self._schemas, prompt=False)
        except ValueError as refused:
            bad = tuple(BadCall(str(call), str(refused)) for call in message.calls)
            return replace(message, calls=bad)
        return message

    def is_thinking(self, reply: Sequence[int]) -> bool:
        """Whether the reasoning of a reply has begun and not ended."""
        text = self._decode(reply)
        return (
            self.markup.marks.begin(text, self._reader.opened)
            and self.markup.marks.close not in text
        )

    def reasoning_tokens(self, reply: Sequence[int]) -> int:
        """How many tokens of a reply are its reasoning, with its end mark; 0 without any."""
        marks = self.markup.marks
        if not marks.begin(self._decode(reply), self._reader.opened):
            return 0
        pieces = self._tokenizer.convert_ids_to_tokens(list(reply))  # the mark is ASCII in them
        before, mark, _ = "".join(pieces).partition(marks.close)
        ends = accumulate(map(len, pieces))
        return bisect_left([*ends], len(before + mark)) + 1 if mark else len(reply)

    def reply_text(self, message: Message) -> str:
        """The text of a reply with its calls, as the model writes it after a prompt."""
        prompt = self._renderer.text([QUESTION], self._schemas)
        dummy, whole = (
            self._renderer.text([QUESTION, reply], self._schemas, prompt=False)
            for reply in (Message("assistant", OTHER), message)
        )
        # a template may drop the header of a reply (such as an empty <think>) later
        kept = prompt if whole.startswith(prompt) else common_beginning(prompt, dummy)
        ends = [at for at, name in self._renderer.markup(whole) if name in self.markup.stop]
        end = ends[-1] if ends and ends[-1] >= len(kept) else None
        text = self._renderer.shown(whole[len(kept) : end])
        opened = self._reader.opened and kept != prompt and self.markup.marks.close not in text
        if opened or message.reasoning.strip() not in text:
            return self.markup.marks.joined(message.reasoning, text, opened)
        return text

    def written(self, message: Message) -> tuple[int, ...]:
        """The tokens of a reply with its end."""
        text = self.reply_text(message)
        return (*reply_encoder(self._tokenizer)(text), self.stop_tokens[0])

    def difference(self, messages: MessageList) -> str:
        """The first token of a prompt that a chat server writes differently, "" for none.

        Contents with added tokens are not compared: a server turns them into markup.
        """
        if any(self._renderer.markup(item.content) for item in messages):
            return ""
        served = self._renderer.served(messages, self._schemas)
        pairs = zip_longest(self.open(messages, self._schemas), served, fillvalue=0)
        for place, pair in enumerate(pairs):
            if pair[0] != pair[1]:
                own, other = (self._tokenizer.convert_ids_to_tokens(token) for token in pair)
                return f"token {place} is {own!r}, served {other!r}"
        return ""

    def _reader_of(self, renderer: JinjaRenderer) -> ReplyReader:
        header = renderer.shown(renderer.text([QUESTION], ()))
        opened = header.rstrip().endswith(self.markup.marks.open.rstrip())
        return ReplyReader(self._tokenizer, self.markup, header, opened, self._schemas)

    def _end_of_reply(self, whole: str, before: MessageList, read: MessageList) -> int:
        """Where the reply's end token begins in the text, -1 without one."""
        common = whole
        if read:
            # before the first new content, the last end token is the reply's
            other = replace(read[0], content=f"{read[0].content}{OTHER}")
            changed = self._renderer.text((*before, other, *read[1:]), self._schemas)
            common = common_beginning(whole, changed)
        ends = [at for at, name in self._renderer.markup(common) if name in self.markup.stop]
        return ends[-1] if ends and not (read and common == whole) else -1

    def _decode(self, tokens: Sequence[int]) -> str:
        return self._renderer.encoder.decode(tokens)

    def _id(self, token: str) -> int:
        if (index := self._renderer.encoder.id_of(token)) is None:
            raise ValueError(f"template: {token!r} is not one token of this model.")
        return index


def writer(template: ChatTemplate) -> Callable[[Message], str]:
    """The function that writes a reply as text in the template's call format."""
    return template.reply_text if isinstance(template, ModelTemplate) else reply_text


def _switch(tokenizer: PreTrainedTokenizerBase, variables: Mapping[str, JSON]) -> str:
    """The variable that switches reasoning, or ""; raises ValueError for unknown variables."""
    from jinja2 import Environment, meta  # needed here only

    text = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", jinja_of(tokenizer))  # transformers' tag
    syntax = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    own = meta.find_undeclared_variables(syntax) - NOT_VARIABLES
    for name in variables:
        if name not in own:
            raise ValueError(
                f"template.{name}: this model's chat template reads no such variable."
                f"{did_you_mean(name, sorted(own))}"
            )
    return next((name for name in SWITCHES if name in own), "")


def _now(
    tokenizer: PreTrainedTokenizerBase, variables: Mapping[str, JSON], date: str
) -> dict[str, Any]:
    """The function that templates read the date from; raises ValueError if they need one."""
    dated = "strftime_now" in jinja_of(tokenizer) and "date_string" not in variables
    if dated and not date:
        raise ValueError(
            "template.date: this model's chat template inserts the current date, so prompts would "
            "change every day. Set a date, such as template.date=2026-01-31."
        )
    return {"strftime_now": datetime.fromisoformat(date).strftime} if date else {}
