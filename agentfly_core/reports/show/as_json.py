"""Episodes as JSON: messages, tokens and rewards."""

from collections.abc import Sequence

from agentfly_core.records.trajectory import BadCall, Message, Observation, Trajectory, Unscored
from agentfly_core.reports.show.choice import StoredEpisode, by_episode
from agentfly_core.reports.show.printed import Twice
from agentfly_core.runs.episodes import Episodes, Pair, reward_of
from agentfly_core.system.formats.json_value import JSON, as_json


def episodes_json(
    stored: Episodes, matching: int, chosen: Sequence[StoredEpisode]
) -> dict[str, JSON]:
    """Return the chosen episodes as JSON.

    The result also has the number of all episodes, and `matching`, which is the number of episodes
    that meet the user's conditions.
    """
    shown: list[JSON] = [episode_json(pair) for each in chosen for pair in each.conversations]
    return {**_about(stored, matching), "shown": shown}


def both_json(
    stored: Episodes, against: Episodes, matching: int, chosen: Sequence[Twice]
) -> dict[str, JSON]:
    """Return the chosen episodes of two policies as JSON, with the change of each reward."""
    shown: list[JSON] = [
        {"change": twice.change, "shown": episode_json(pair), "against": episode_json(other)}
        for twice in chosen
        for pair, other in twice.conversations
    ]
    return {**_about(stored, matching), "against": against.reference, "shown": shown}


def episode_json(pair: Pair) -> dict[str, JSON]:
    """Return a conversation as JSON: `{"problem": {"id": "add-41-58", ...}, "reward": 1.0,
    "messages": [...]}`.

    For each reply, the field `turns` has the tokens that the model read, the tokens that the model
    sampled, and the log-probabilities of the sampled tokens at the sampling temperature. The
    conversation belongs to one speaker (participant of an episode). If this speaker is not trained,
    the field `policy` names the policy of the speaker. Otherwise, `policy` is empty.
    """
    trajectory, scored = pair
    problem = trajectory.problem
    why = scored.reward.reason if scored and isinstance(scored.reward, Unscored) else None
    return {
        "problem": {"id": problem.id, "prompt": problem.prompt, "facts": as_json(problem.facts)},
        "chain": trajectory.chain,
        "agent": trajectory.agent,
        "role": trajectory.role,
        "policy": trajectory.policy,
        "reward": reward_of(scored),
        "rewards": dict(scored.rewards) if scored else {},
        "turn_rewards": list(scored.turn_rewards) if scored else [],
        "unscored": why,
        "ending": trajectory.ending.value,
        "error": trajectory.error,
        "answer": trajectory.answer,
        "messages": messages(trajectory),
        "turns": turns(trajectory),
    }


def messages(trajectory: Trajectory) -> list[JSON]:
    """Return the messages of an episode as JSON: `[{"role": "user", "text": "What is 41+58?"},
    ...]`.

    A reply also has the field `calls`. A tool's answer has the role "tool" and the fields `tool`
    (the tool's name) and `error`.
    """
    items: list[JSON] = []
    for turn in trajectory.turns:
        items += [_message(item) for item in turn.read]
        items.append(_message(turn.reply))
    return items + [_message(item) for item in trajectory.closing]


def turns(trajectory: Trajectory) -> list[JSON]:
    """Return each turn's new prompt tokens (`given`) and sampled tokens as JSON: `[{"given": [1],
    "sampled": [{"tokens": [57], "logprobs": [-0.1]}]}]`.
    """
    return [
        {
            "given": list(turn.given.tokens),
            "sampled": [
                {
                    "tokens": list(span.tokens),
                    "logprobs": list(span.logprobs),
                    "policy_version": span.policy_version,
                    "finish": span.finish,
                }
                for span in turn.sampled
            ],
            "context": turn.context,
            "call": turn.call,
            "reward": turn.reward,
        }
        for turn in trajectory.turns
    ]


def _about(stored: Episodes, matching: int) -> dict[str, JSON]:
    return {
        "reference": stored.reference,
        "title": stored.title,
        "episodes": len(by_episode(stored.pairs)),
        "matching": matching,
    }


def _message(item: Message | Observation) -> JSON:
    if isinstance(item, Observation):
        return {"role": "tool", "tool": item.tool, "text": item.content, "error": item.error}
    calls: list[JSON] = [
        {"text": call.text, "fault": call.fault}
        if isinstance(call, BadCall)
        else {"name": call.name, "arguments": as_json(call.arguments)}
        for call in item.calls
    ]
    fields: dict[str, JSON] = {"role": item.role, "text": item.content}
    return {**fields, "calls": calls} if item.role == "assistant" else fields
