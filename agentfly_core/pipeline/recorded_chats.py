"""Convert the chats in a file to demonstrations, with the same tokens as in a rollout."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import ClassVar

from agentfly_core.authoring import injection
from agentfly_core.authoring.chat_template import Conversation, ToolSchema
from agentfly_core.authoring.event_loop import run
from agentfly_core.config.import_path import construct
from agentfly_core.config.parts import WarmStart
from agentfly_core.config.reference import chat_file
from agentfly_core.datasets.chat_files import ChatFile, ChatRow
from agentfly_core.datasets.chats import RecordedChat, RecordedReply, reply_places
from agentfly_core.datasets.traces import OURS, RecordedCall
from agentfly_core.inference.sampler import Request, SamplerSession
from agentfly_core.inference.scripted import Scripted
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.pipeline.playing import scripted
from agentfly_core.records.dataset import BadRow
from agentfly_core.records.messages import CALL, CALL_END, plain, reply_text
from agentfly_core.records.parquet import trajectory_of
from agentfly_core.records.trajectory import (
    Ending,
    Message,
    Observation,
    Problem,
    Sampled,
    Trajectory,
    Turn,
)
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.episode_state import EpisodeState
from agentfly_core.rollout.history.timeline import Reply
from agentfly_core.rollout.rules import EpisodeRules, EpisodeSpec
from agentfly_core.rollout.speaker import Speaker
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.text import THINK, THOUGHT_END, did_you_mean, fault, shown

WRITTEN = (THINK, THOUGHT_END, CALL, CALL_END)
"""Tokens that mark reasoning and tool calls. The text of a reply may contain these tokens."""


class OtherTokens(Exception):
    """Recorded prompt ids or the text of recorded reply ids differ from the rendered chat."""


@dataclass(frozen=True, eq=False)
class Replayed(SamplerSession):
    """A sampler session that returns the recorded tokens of `replies`.

    If a reply lacks recorded tokens, the sampler `script` encodes the reply's text. `stops` are the
    stop tokens. `sample` raises OtherTokens if a prompt differs from the recorded prompt.
    """

    # a recorded reply is complete
    continues: ClassVar[bool] = False

    script: Scripted
    replies: Sequence[RecordedReply]
    stops: Sequence[int]

    async def sample(self, request: Request) -> Sampled:
        """Return the recorded tokens of the reply to a request.

        If the reply has no recorded tokens, its text is encoded as tokens.
        """
        if (call := self.replies[request.conversation.turn].call) is None:
            return await self.script.sample(request)
        # after another prompt, the recorded log-probabilities would not belong to the ids
        if tuple(request.prompt) != call.prompt:
            raise OtherTokens
        whole = bool(call.sampled) and call.sampled[-1] in self.stops
        # -1, because another program sampled the tokens
        return Sampled(call.sampled, call.logprobs, -1, "stop" if whole else "length")


def masked(spans: Sequence[Sampled], trained: Sequence[bool]) -> Iterator[Sampled]:
    """Split spans of sampled tokens where the loss mask `trained` changes.

    `trained` contains one value for each token, in the order of the spans. After the split, either
    all tokens of a span are trained or none.
    """
    bits = iter(trained)
    for span in spans:
        begin = 0
        for bit, same in groupby([next(bits) for _ in span.tokens]):
            end = begin + len([*same])
            yield span.part(begin, end, bit and span.trained)
            begin = end


@dataclass(frozen=True)
class ChatPlayer:
    """Converts chats to trajectories with the template and the tools of an experiment.

    Limits on the length of replies and on the number of turns do not apply. A chat with more than
    `max_model_len` tokens becomes a BadRow.
    """

    spec: RolloutSpec
    tokenizer: PreTrainedTokenizerBase

    def trajectories(self, rows: Sequence[ChatRow]) -> list[Trajectory | BadRow]:
        """Return the trajectory of each chat, in order. For an unusable chat, return a BadRow with
        the reason.
        """
        return run(self._all(rows))

    async def _all(self, rows: Sequence[ChatRow]) -> list[Trajectory | BadRow]:
        played = list[Trajectory | BadRow]()
        for row in rows:
            try:
                played.append(await self._trajectory(row))
            except ValueError as error:
                played.append(BadRow(row.source, row.number, str(error)))
        return played

    async def _trajectory(self, row: ChatRow) -> Trajectory:
        if row.ours and (kept := self._ours(row)):
            _require_room(kept.turns, self.spec.max_model_len)
            return kept
        rules, problem, tools = self._rules, problem_of(row), self._tools(row)
        prompts = [rules.opening(replace(problem, messages=one.messages)) for one in row.replies]
        pairs, name = zip(row.replies, prompts, strict=True), injection.name(self.spec.agent)
        replies = [replace(reply, messages=prompt) for reply, prompt in pairs]
        spec = EpisodeSpec(problem, 0, "demonstrations", "demonstration", 1.0, 0)
        try:
            turns = await self._turns(tools, spec, replies, name)
        except OtherTokens:
            # the text of every reply is encoded, because later prompts contain the reply that
            # differs
            replies = [replace(reply, call=None) for reply in replies]
            turns = await self._turns(tools, spec, replies, name)
        self._require_plain(replies)
        _require_reasoning(replies, turns)
        _require_room(turns, self.spec.max_model_len)
        return Trajectory(
            id=hashing.short(spec.step, problem.id, 0, name),
            episode=spec.id,
            problem=problem,
            group=hashing.short(spec.step, problem.id),
            chain=0,
            agent=name,
            role=spec.role,
            turns=turns,
            closing=row.closing,
            ending=Ending.TERMINAL if row.closing else Ending.NO_TOOL_CALLS,
            error=None,
            observed={},
            seed=spec.seed,
        )

    def _ours(self, row: ChatRow) -> Trajectory | None:
        """Return the trajectory that `agentfly export` stored in the metadata of a row.

        Returns None if the tokens in the row differ from this trajectory, or if the row was made
        with another template or tokenizer. Raises ValueError if the metadata is not a trajectory.
        """
        assert row.ours is not None
        try:
            trajectory = trajectory_of(row.ours)
        except (KeyError, TypeError) as error:
            raise ValueError(f"its metadata.{OURS} is not a trajectory: {fault(error)}") from None
        rules, first = self.spec.of(trajectory.problem), trajectory.turns[0]
        is_main = trajectory.agent == injection.name(self.spec.agent)
        # the tools of other speakers are not recorded; they may have none
        tools = (rules.schemas,) if is_main else (rules.schemas, ())
        # equal ids of the first prompt show that template and tokenizer are unchanged
        openings = [rules.template.open(first.read, schemas) for schemas in tools]
        same = all(rules.parse(t.sampled, rules.stop) == t.reply for t in trajectory.turns)
        same = (
            same
            and first.given.tokens in openings
            and calls_of(trajectory) == [reply.call for reply in row.replies]
        )
        return trajectory if same else None

    async def _turns(
        self,
        tools: Sequence[ToolSchema],
        spec: EpisodeSpec,
        replies: Sequence[RecordedReply],
        name: str,
    ) -> tuple[Turn, ...]:
        """Make a turn (new prompt tokens and a reply) for each reply.

        A reply that does not continue the conversation of an earlier reply begins a new
        conversation. Raises OtherTokens if recorded prompt ids or the text of recorded reply ids
        differ from the chat.
        """

        async def written(conversation: Conversation) -> Message:
            return replies[conversation.turn].message

        rules = self._rules
        script = scripted(written, self.tokenizer, rules.template)
        sampler = Replayed(script, replies, rules.template.stop_tokens)
        speaker = Speaker(EpisodeState(spec, sampler, name, {}), name, rules)
        settings, played = speaker.settings({"tools": tools}), list[Reply]()
        for number, reply in enumerate(replies):
            earlier = [at for at in range(number) if reply.continues(replies[at])]
            # the reply with the longest prompt, because it is the last reply in the conversation
            last = max(earlier, key=lambda at: len(replies[at].messages), default=None)
            before, begin = (
                (None, 0) if last is None else (played[last], len(replies[last].messages))
            )
            one = await speaker.turn_behind(before, reply.messages[begin:-1], settings)
            if reply.call and _text_of(one.message) != _text_of(reply.message):
                raise OtherTokens
            played.append(one)
        return tuple(map(_trained, speaker.turns, replies))

    @cached_property
    def _rules(self) -> EpisodeRules:
        """The experiment's settings for episodes, without stop strings and without limits on turns,
        replies and contexts.
        """
        return replace(
            self.spec,
            stop=(),
            max_turns=sys.maxsize,
            max_tokens=sys.maxsize,
            max_model_len=sys.maxsize,
            max_sampled_tokens=sys.maxsize,
        )

    def _tools(self, row: ChatRow) -> list[ToolSchema]:
        """Return the tools in the prompt of a row. A row may define tools that the experiment
        lacks.

        Raises ValueError if the row lists an unknown tool without a schema, or calls a tool that is
        not listed. Also raises ValueError if the row changes the schema of an experiment's tool.
        """
        own = {tool.name: tool for tool in self.spec.tools}
        listed = [tool.schema for tool in own.values()] if row.tools is None else row.tools
        for tool in listed:
            is_name = not (tool.description or tool.parameters)
            if tool.name in own and not is_name and tool != own[tool.name].schema:
                raise ValueError(
                    f"the row lists the tool {tool.name!r} with a description or parameters that "
                    "differ from the experiment's tool of this name; list only the name, or "
                    "remove the tool from `tools` of the experiment"
                )
            if tool.name not in own and is_name:
                raise ValueError(
                    f"the row lists the tool {tool.name!r}, which the experiment does not have "
                    f"(tools: {', '.join(own) or 'none'}). Remove this tool, or give this tool a "
                    f"schema with parameters.{did_you_mean(tool.name, [*own])}"
                )
        names = [tool.name for tool in listed]
        messages = chain.from_iterable(reply.messages for reply in row.replies)
        called = [call.name for m in messages for call in getattr(m, "calls", ())]
        if unknown := [name for name in called if name not in names]:
            raise ValueError(
                f"the row calls the tool {unknown[0]!r}, which is not one of the row's tools "
                f"({', '.join(names) or 'none'}): add the tool to `tools` of the experiment or of "
                "the row"
            )
        return [own[tool.name].schema if tool.name in own else tool for tool in listed]

    def _require_plain(self, replies: Sequence[RecordedReply]) -> None:
        """Raise ValueError if a reply's text has a control token, which would end the reply."""
        tokens = self._control_tokens
        for reply in (one.message for one in replies):
            text = "\n".join((reply.reasoning, reply_text(reply)))
            if written := [token for token in tokens if token in text]:
                raise ValueError(
                    f"the reply {shown(reply.content)} contains the special token {written[0]!r} "
                    "in its text; remove the token"
                )

    @property
    def _control_tokens(self) -> list[str]:
        """The control tokens: special tokens, and added tokens that occur in the template.

        Tokens that mark tool calls or reasoning are left out.
        """
        jinja = str(getattr(self.spec.template, "jinja", ""))
        added = self.tokenizer.added_tokens_decoder.values()
        # an added token that the template contains is markup, even if it is not special
        own = [t.content for t in added if t.special or (t.content.strip() and t.content in jinja)]
        names = dict.fromkeys([*self.tokenizer.all_special_tokens, *own])
        return [name for name in names if name not in WRITTEN]


def calls_of(trajectory: Trajectory) -> list[RecordedCall]:
    """Return the prompt ids, reply ids, log-probabilities and loss mask of each turn."""
    tokens, calls = defaultdict[int, tuple[int, ...]](tuple), list[RecordedCall]()
    for turn in trajectory.turns:
        prompt, trains = (*tokens[turn.context], *turn.given.tokens), trajectory.trains(turn)
        sampled = tuple(chain.from_iterable(span.tokens for span in turn.sampled))
        logprobs = tuple(chain.from_iterable(span.logprobs for span in turn.sampled))
        mask = tuple(trains and span.trained for span in turn.sampled for _ in span.tokens)
        calls.append(RecordedCall(prompt, sampled, logprobs, mask))
        tokens[turn.context] = (*prompt, *sampled)
    return calls


def _text_of(item: Message | Observation) -> list[str]:
    # stripped, because templates remove white space around texts
    return [text.strip() for text in (*plain(item), getattr(item, "reasoning", ""))]


def keeps_ids(row: ChatRow, trajectory: Trajectory) -> bool:
    """Whether the replies of a trajectory have the token ids that `row` contains.

    Replies without token ids in `row` are ignored.
    """
    pairs = zip(row.replies, calls_of(trajectory), strict=True)
    return all(reply.call is None or reply.call.sampled == own.sampled for reply, own in pairs)


def recorded(
    warm_start: WarmStart, player: ChatPlayer
) -> tuple[list[tuple[ChatRow, Trajectory]], int]:
    """Return the result of `played_chats` for the file in `warm_start.demonstrations`."""
    path = chat_file(warm_start.demonstrations)
    assert path is not None
    return played_chats(construct(ChatFile, warm_start.settings), path, player)


def played_chats(
    file: ChatFile, path: Path, player: ChatPlayer
) -> tuple[list[tuple[ChatRow, Trajectory]], int]:
    """Return the usable chats of a file with their trajectories, and the number of unusable rows.

    Raises ValueError if there are more unusable rows than the settings of the file tolerate.
    """
    rows = [*file.read(path)]
    chats = [row for row in rows if isinstance(row, ChatRow)]
    played = player.trajectories(chats)
    bad = [row for row in (*rows, *played) if isinstance(row, BadRow)]
    file.require_few(sorted(bad, key=attrgetter("row")))
    pairs = zip(chats, played, strict=True)
    return [(row, one) for row, one in pairs if isinstance(one, Trajectory)], len(bad)


def problem_of(row: ChatRow) -> Problem:
    """Make the problem of a chat from the messages before the first reply.

    The problem's id contains the file name and the number of the row.
    """
    messages = row.replies[0].messages
    opening = RecordedChat(messages[: reply_places(messages)[0]], ())
    plain = opening.messages == (Message("user", opening.question),)
    tools = None if row.tools is None else tuple(tool.name for tool in row.tools)
    # the number is padded with zeros, because ids must sort in the order of the file
    name = f"{row.source}:{row.number:08d}"
    return Problem(name, opening.question, messages=() if plain else opening.messages, tools=tools)


def _trained(turn: Turn, reply: RecordedReply) -> Turn:
    """Return the turn with the loss mask that was recorded for the reply."""
    if reply.call:
        return replace(turn, sampled=tuple(masked(turn.sampled, reply.call.trained)))
    spans = (replace(span, trained=span.trained and reply.trained) for span in turn.sampled)
    return replace(turn, sampled=tuple(spans))


def _require_reasoning(replies: Sequence[RecordedReply], turns: Sequence[Turn]) -> None:
    """Raise ValueError if a reply has reasoning that the chat template leaves out."""
    for recorded_reply, turn in zip(replies, turns, strict=True):
        reply = recorded_reply.message
        if reply.reasoning and turn.reply.reasoning != reply.reasoning:
            raise ValueError(
                f"message {len(recorded_reply.messages)} has the reasoning "
                f"{shown(reply.reasoning)}, which the template does not write; move the reasoning "
                "into the content, or remove it"
            )


def _require_room(turns: Sequence[Turn], limit: int) -> None:
    """Raise ValueError if a context (prompt and replies) has more than `limit` tokens."""
    tokens = Counter[int]()
    for turn in turns:
        tokens[turn.context] += len(turn.given.tokens) + sum(len(s.tokens) for s in turn.sampled)
    if (longest := max(tokens.values())) > limit:
        raise ValueError(
            f"the chat has {longest} tokens, but agent.max_model_len is {limit}; raise "
            "agent.max_model_len, or remove the row"
        )
