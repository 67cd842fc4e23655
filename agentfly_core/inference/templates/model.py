"""The Jinja chat template of a model's tokenizer. Chat servers use the same template."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from agentfly_core.authoring.chat_template import ChatTemplate, ToolSchema
from agentfly_core.inference.templates.call_formats import FORMATS, FormatName
from agentfly_core.inference.templates.dialect import TOOLS, Markup, markup_of
from agentfly_core.inference.templates.jinja_renderer import JinjaRenderer, common_beginning
from agentfly_core.inference.templates.replies import OTHER, QUESTION, Replies
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.inference.templates.variables import SWITCHES, jinja_of, switch_of, with_date
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.records.messages import reply_text
from agentfly_core.records.trajectory import BadCall, Message, Observation, ToolCall
from agentfly_core.system.formats.text import before_stop

MessageList = Sequence[Message | Observation]


class ModelTemplate:
    """The chat template of the model's tokenizer (`template: model`).

    Prompts have the same tokens as with `apply_chat_template`, with one difference: contents of
    messages never become added tokens. Some templates render earlier messages differently after new
    messages are added. In this case, a new context (sequence of tokens) starts. With
    `history="kept"`, the new messages are appended to the old tokens instead. A new context then
    starts only if the rendered text does not show where the last reply ends.

    - `calls`, `stop`: the format of tool calls and the end tokens. By default, both are found by
      rendering short conversations.
    - `date`: a date such as 2026-01-31 for templates that insert the current date
    - `train_reasoning`: whether reasoning tokens are trained
    - `thinking_budget`: the maximum number of reasoning tokens; 0 means no limit
    - `variables`: variables that are passed to the template

    The constructor raises ValueError if the tokenizer or the template cannot be used, or if the
    template does not read one of the variables.
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
        self.tokenizer, self.history, self._variables = tokenizer, history, variables
        self.train_reasoning, self.thinking_budget = train_reasoning, thinking_budget
        self._jinja = jinja_of(tokenizer, TOOLS)
        self._switch = switch_of(self._jinja, variables)
        given = with_date(self._jinja, variables, date)
        self.markup: Markup = markup_of(tokenizer, given, stop, calls)
        self._renderer = JinjaRenderer(tokenizer, given, self.markup.dialect)
        self._replies = Replies(tokenizer, self._renderer, self.markup)
        self.stop_tokens = tuple(map(self._renderer.encoder.id_of, self.markup.stop))
        marks = self.markup.marks
        self.thought_close = self._renderer.encoder.id_of(marks.close) if thinking_budget else -1
        self.thought_end = self._renderer.tokens(marks.joined("", "", opened=True))
        """The tokens that are appended to end unfinished reasoning."""
        check = [QUESTION, Message("assistant", "\n a"), QUESTION]
        if difference := self._renderer.difference(check, ()):
            raise ValueError(
                "template: with this tokenizer, a prompt in training would differ from the prompt "
                f"of a chat server ({difference}). Choose another model, or write a template for "
                "this model."
            )

    @property
    def jinja(self) -> str:
        """The chat template for transformers and vLLM. Its first lines set the values of
        `variables`, so these values need not be passed with each request.
        """
        names = {k: "none" if v is None else json.dumps(v) for k, v in self._variables.items()}
        settings = (f"{{%- set {name} = {value} -%}}\n" for name, value in names.items())
        return "".join(settings) + self._jinja

    @property
    def reads_calls(self) -> bool:
        """Whether tool calls in replies can be parsed."""
        return self._replies.reads_calls

    def bound(self, tools: Sequence[ToolSchema], thinking: bool | None) -> Self:
        """Return a copy of this template for conversations with these tools.

        `thinking` switches reasoning on or off; None means the default of the template. Raises
        ValueError if calls of the tools cannot be parsed. Also raises ValueError if `thinking` is
        set, but the template cannot switch reasoning.
        """
        if tools and not self.reads_calls:
            raise ValueError(
                "template: the format in which this model's template writes tool calls is "
                f"unknown. Set template.calls to one of {', '.join(FORMATS)}, or remove the tools."
            )
        bound = copy.copy(self)
        if thinking is not None:
            if not self._switch:
                raise ValueError(
                    f"reply(thinking={thinking}): this model's template cannot switch reasoning "
                    f"on or off, because it reads none of the variables {', '.join(SWITCHES)}. "
                    "Remove `thinking`."
                )
            bound._renderer = self._renderer.with_variables({self._switch: thinking})
        bound._replies = replace(self._replies, renderer=bound._renderer, tools=tuple(tools))
        return bound

    def open(self, messages: MessageList, tools: Sequence[ToolSchema]) -> tuple[int, ...]:
        """Encode a whole prompt, including the header of the next reply."""
        return self._renderer.tokens(self._renderer.text(messages, tools))

    def extend(
        self, reply: Sequence[int], read: MessageList, before: MessageList = ()
    ) -> tuple[int, ...] | None:
        """Encode the messages in `read`, which follow the tokens of `reply`.

        `before` contains all messages up to and including the reply. Returns None if the new
        messages change the tokens of earlier messages. For details, see `ChatTemplate.extend`.
        """
        whole = self._renderer.text((*before, *read), self._replies.tools)
        prompt = self._renderer.text(before[:-1], self._replies.tools)
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
        """Shorten a text to at most `tokens` tokens. Its middle is replaced by `[... N bytes
        omitted ...]`.
        """
        return self._renderer.encoder.fit(text, tokens)

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """Parse the reasoning, the text and the tool calls of a reply. Invalid calls become
        BadCall.
        """
        ended = bool(reply) and reply[-1] in self.stop_tokens
        tokens = reply[:-1] if ended else reply
        message = self._replies.read(before_stop(self._decode(tokens), stop))
        try:  # an error in a reply must not end the training
            kept = self._replies.has_tokens(message, tokens)
        except ValueError as refused:
            bad = tuple(BadCall(str(call), str(refused)) for call in message.calls)
            return replace(message, calls=bad, rewritten=True)
        return replace(message, rewritten=not kept)

    def is_thinking(self, reply: Sequence[int]) -> bool:
        """Whether a reply has begun its reasoning but has not ended it."""
        return self._replies.is_thinking(self._decode(reply))

    def reasoning_tokens(self, reply: Sequence[int]) -> int:
        """Return the number of reasoning tokens of a reply, including the closing tag."""
        return self._replies.reasoning_tokens(self._decode(reply), reply)

    def reply_text(self, message: Message) -> str:
        """Return the text of a reply with its tool calls, as the model writes it after a prompt."""
        return self._replies.text(message)

    def end_of(self, message: Message) -> int:
        """Return the token that ends a reply.

        GPT-OSS and GLM have different end tokens for a tool call and for a text.
        """
        calls = [call for call in message.calls if isinstance(call, ToolCall)]
        if not calls or len(self.stop_tokens) == 1:
            return self.stop_tokens[0]
        before, read = (QUESTION, message), [Observation(call.name, "") for call in calls]
        whole = self._renderer.text((*before, *read), self._replies.tools)
        end = self._end_of_reply(whole, before, read)
        return self.stop_tokens[0] if end < 0 else self._renderer.tokens(whole[end:])[0]

    def difference(self, messages: MessageList) -> str:
        """Compare the tokens of the same prompt in training and on a chat server.

        Return a description of the first token that differs, or "" if all tokens are equal.
        """
        return self._renderer.difference(messages, self._replies.tools)

    def _end_of_reply(self, whole: str, before: MessageList, read: MessageList) -> int:
        """Return the index in the text `whole` where the end token of a reply begins.

        The reply is the last message of `before`. `read` contains the messages after the reply.
        `whole` is the text of all these messages. Returns -1 if the end token is not found.
        """
        common = whole
        if read:
            # the end token of the reply is the last end token before the content of the first new
            # message
            other = replace(read[0], content=f"{read[0].content}{OTHER}")
            changed = self._renderer.text((*before, other, *read[1:]), self._replies.tools)
            common = common_beginning(whole, changed)
        marked = self._renderer.encoder.markup_in(common)
        ends = [at for at, name in marked if name in self.markup.stop]
        return ends[-1] if ends and not (read and common == whole) else -1

    def _decode(self, tokens: Sequence[int]) -> str:
        return self._renderer.encoder.decode(tokens)


def writer(template: ChatTemplate) -> Callable[[Message], str]:
    """Return the function that writes a reply as text in the call format of a template."""
    return template.reply_text if isinstance(template, ModelTemplate) else reply_text


def reply_tokens(
    template: ChatTemplate, tokenizer: PreTrainedTokenizerBase, reply: Message
) -> tuple[int, ...]:
    """Encode a reply, including its end token, as the template writes it after a prompt."""
    return (*reply_encoder(tokenizer)(writer(template)(reply)), end_of(template, reply))


def end_of(template: ChatTemplate, reply: Message) -> int:
    """Return the token with which the template ends a reply."""
    if isinstance(template, ModelTemplate):
        return template.end_of(reply)
    return template.stop_tokens[0]
