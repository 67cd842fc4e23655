"""Definitions of the algorithms, token by token in plain Python; they share no code with the
product.

A story is one trajectory: `turns` numbers its sampled tokens by turn; `values` and the other
sequences have the same length. Every estimator returns a list of advantages for each story, one per
token.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, prod
from statistics import mean, stdev


@dataclass(frozen=True)
class Story:
    group: str
    reward: float
    by_turn: Sequence[float]
    turns: Sequence[int]
    states: Sequence[str]
    parts: Mapping[str, float]
    greedy: float | None
    values: Sequence[float]

    @property
    def token_rewards(self) -> list[float]:
        """The reward of a turn is at its last token; the rest of the episode's reward is at the
        last token of the episode.
        """
        rewards = [0.0] * len(self.turns)
        for k, reward in enumerate(self.by_turn):
            if k in self.turns:
                rewards[max(t for t, turn in enumerate(self.turns) if turn == k)] += reward
        rewards[-1] += self.reward - sum(self.by_turn)
        return rewards


Advantages = list[list[float]]


def in_groups(
    stories: Sequence[Story], of_one: Callable[[Story, list[Story]], float]
) -> Advantages:
    """The same number for every token of a story; 0 where all rewards of the group are equal."""
    advantages = []
    for story in stories:
        group = [other for other in stories if other.group == story.group]
        equal = len({other.reward for other in group}) == 1
        advantages.append([0.0 if equal else of_one(story, group)] * len(story.turns))
    return advantages


def grpo(stories: Sequence[Story]) -> Advantages:
    def of_one(story: Story, group: list[Story]) -> float:
        rewards = [other.reward for other in group]
        return (story.reward - mean(rewards)) / (stdev(rewards) + 1e-6)

    return in_groups(stories, of_one)


def dr_grpo(stories: Sequence[Story]) -> Advantages:
    return in_groups(stories, lambda story, group: story.reward - mean(o.reward for o in group))


def rloo(stories: Sequence[Story]) -> Advantages:
    return in_groups(
        stories, lambda story, group: story.reward - mean(o.reward for o in group if o is not story)
    )


def opo(stories: Sequence[Story]) -> Advantages:
    def of_one(story: Story, group: list[Story]) -> float:
        return story.reward - sum(o.reward * len(o.turns) for o in group) / sum(
            len(o.turns) for o in group
        )

    return in_groups(stories, of_one)


def max_rl(stories: Sequence[Story]) -> Advantages:
    def of_one(story: Story, group: list[Story]) -> float:
        expected = mean(o.reward for o in group)
        return (story.reward - expected) / (expected + 1e-6)

    return in_groups(stories, of_one)


def remax(stories: Sequence[Story]) -> Advantages:
    return [[0.0 if s.greedy is None else s.reward - s.greedy] * len(s.turns) for s in stories]


def reinforce_pp(stories: Sequence[Story], gamma: float = 1.0) -> Advantages:
    return whitened([discounted(story.token_rewards, gamma) for story in stories])


def reinforce_pp_baseline(stories: Sequence[Story]) -> Advantages:
    return whitened(dr_grpo(stories))


def gdpo(stories: Sequence[Story], weights: Mapping[str, float]) -> Advantages:
    total = [[0.0] * len(story.turns) for story in stories]
    for name, weight in weights.items():
        alone = grpo(
            [Story(s.group, s.parts[name], (), s.turns, (), {}, None, ()) for s in stories]
        )
        total = [
            [a + weight * b for a, b in zip(*pair, strict=True)]
            for pair in zip(total, alone, strict=True)
        ]
    return whitened(total)


def gigpo(stories: Sequence[Story], gamma: float = 0.95, weight: float = 1.0) -> Advantages:
    returns = []
    for story in stories:
        rewards, earned = story.token_rewards, [0.0] * len(story.states)
        for t, turn in enumerate(story.turns):
            earned[turn] += rewards[t]
        returns.append(discounted(earned, gamma))
    advantages = []
    for story, mine, episode in zip(stories, returns, dr_grpo(stories), strict=True):
        step = [
            mine[k]
            - mean(
                theirs[j]
                for other, theirs in zip(stories, returns, strict=True)
                for j, there in enumerate(other.states)
                if other.group == story.group and there == state
            )
            for k, state in enumerate(story.states)
        ]
        advantages.append(
            [a + weight * step[turn] for a, turn in zip(episode, story.turns, strict=True)]
        )
    return advantages


def dapo(stories: Sequence[Story], longest: int, buffer: int, factor: float) -> Advantages:
    """GRPO's, after the soft overlong punishment (eq. 13)."""

    def penalty(length: int) -> float:
        if length <= longest - buffer:
            return 0.0
        return factor * (length - (longest - buffer)) / buffer if length <= longest else factor

    return grpo(
        [replace(story, reward=story.reward - penalty(len(story.turns))) for story in stories]
    )


def rft(stories: Sequence[Story], threshold: float, best: int) -> Advantages:
    """1 for the `best` successes of each group, else 0; the first of equal successes come first."""
    advantages = []
    for number, story in enumerate(stories):
        others = [(other, i) for i, other in enumerate(stories) if other.group == story.group]
        before = [
            o
            for o, i in others
            if o.reward > story.reward or (o.reward == story.reward and i < number)
        ]
        advantages.append(
            [float(story.reward >= threshold and len(before) < best)] * len(story.turns)
        )
    return advantages


def sft(stories: Sequence[Story]) -> Advantages:
    return [[1.0] * len(story.turns) for story in stories]


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """The sum over j >= t of gamma^(j - t) r_j."""
    return [
        sum(gamma ** (j - t) * rewards[j] for j in range(t, len(rewards)))
        for t in range(len(rewards))
    ]


def whitened(advantages: Advantages) -> Advantages:
    every = [a for line in advantages for a in line]
    if len(set(every)) < 2:
        return [[0.0] * len(line) for line in advantages]
    return [[(a - mean(every)) / (stdev(every) + 1e-8) for a in line] for line in advantages]


def gae(rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float) -> list[float]:
    """The sum over j >= t of (gamma lam)^(j - t) (r_j + gamma V_(j+1) - V_j), with nothing after
    the last one.
    """
    deltas = [
        r + gamma * after - v
        for r, v, after in zip(rewards, values, [*values[1:], 0.0], strict=True)
    ]
    return discounted(deltas, gamma * lam)


def by_token(story: Story, gamma: float, lam: float) -> tuple[list[float], list[float]]:
    """Advantages and returns."""
    advantages = gae(story.token_rewards, story.values, gamma, lam)
    return advantages, [a + v for a, v in zip(advantages, story.values, strict=True)]


def ppo(stories: Sequence[Story], gamma: float, lam: float) -> Advantages:
    return whitened([by_token(story, gamma, lam)[0] for story in stories])


def by_turn(story: Story, gamma: float, lam: float) -> tuple[list[float], list[float]]:
    spoken = sorted(set(story.turns))
    rewards = [
        sum(r for r, turn in zip(story.token_rewards, story.turns, strict=True) if turn == k)
        for k in spoken
    ]
    values = [story.values[story.turns.index(k)] for k in spoken]
    advantages = gae(rewards, values, gamma, lam)
    at = [spoken.index(turn) for turn in story.turns]
    return [advantages[i] for i in at], [advantages[i] + values[i] for i in at]


def bilevel(
    story: Story, gamma: float, lam: float, gamma_turn: float, lam_turn: float
) -> tuple[list[float], list[float]]:
    spoken = sorted(set(story.turns))
    places = [[t for t, turn in enumerate(story.turns) if turn == k] for k in spoken]
    ends = [here[-1] for here in places]
    worth = gae(
        [story.token_rewards[t] for t in ends],
        [story.values[t] for t in ends],
        gamma_turn,
        lam_turn,
    )
    advantages: list[float] = []
    for here, end, advantage in zip(places, ends, worth, strict=True):
        rewards = [*(story.token_rewards[t] for t in here[:-1]), advantage + story.values[end]]
        advantages += gae(rewards, [story.values[t] for t in here], gamma, lam)
    return advantages, [a + v for a, v in zip(advantages, story.values, strict=True)]


@dataclass(frozen=True)
class Token:
    """One sampled token: log-probabilities of now, before the update, when sampled and of the
    reference; A; the mean of now - old over its row.
    """

    now: float
    old: float
    rollout: float
    reference: float
    advantage: float
    row: float

    @property
    def rho(self) -> float:
        return exp(self.now - self.old)


def limited(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


# A loss is its value and its slope: its derivative by the token's log-probability of now.


def clip(t: Token, low: float, high: float, dual: float | None) -> tuple[float, float]:
    objective = min(t.rho * t.advantage, limited(t.rho, 1 - low, 1 + high) * t.advantage)
    moves = objective == t.rho * t.advantage
    if dual is not None and t.advantage < 0 and objective < dual * t.advantage:
        objective, moves = dual * t.advantage, False
    return -objective, -t.rho * t.advantage * moves


def gspo(t: Token, low: float, high: float) -> tuple[float, float]:
    s = exp(t.row)
    objective = min(s * t.advantage, limited(s, 1 - low, 1 + high) * t.advantage)
    return -objective, -s * t.advantage * (objective == s * t.advantage)


def cispo(t: Token, low: float, high: float) -> tuple[float, float]:
    weight = limited(t.rho, 1 - low, 1 + high)
    return -weight * t.advantage * t.now, -weight * t.advantage


def sapo(t: Token, tau: float, tau_bad: float) -> tuple[float, float]:
    mine = tau if t.advantage > 0 else tau_bad
    gate = 1 / (1 + exp(-mine * (t.rho - 1)))
    return -gate * 4 / mine * t.advantage, -4 * gate * (1 - gate) * t.rho * t.advantage


def dppo(t: Token, low: float, high: float) -> tuple[float, float]:
    moved = exp(t.now) - exp(t.rollout)
    if moved > high if t.advantage > 0 else moved < -low:
        return 0.0, 0.0
    return -t.rho * t.advantage, -t.rho * t.advantage


def reinforce(t: Token) -> tuple[float, float]:
    return -t.advantage * t.now, -t.advantage


def divergence(logprob: float, reference: float, kind: str) -> float:
    d = logprob - reference
    return {"k1": d, "k2": d * d / 2, "k3": exp(-d) + d - 1, "abs": abs(d)}[kind]


def value_loss(value: float, old: float, goal: float, near: float) -> float:
    return 0.5 * max((value - goal) ** 2, (limited(value, old - near, old + near) - goal) ** 2)


# A correction returns the factors for the tokens of one row from their w = exp(old - rollout).


def token_tis(row: Sequence[float], cap: float) -> list[float]:
    return [min(w, cap) for w in row]


def sequence_tis(row: Sequence[float], cap: float) -> list[float]:
    return [min(prod(row), cap)] * len(row)


def icepop(row: Sequence[float], low: float, high: float) -> list[float]:
    return [w if low <= w <= high else 0.0 for w in row]


def sequence_mask(row: Sequence[float], low: float, high: float) -> list[float]:
    return [float(low <= prod(row) ** (1 / len(row)) <= high)] * len(row)


# An aggregation is one number from the losses of each trajectory's tokens.


def token_mean(losses: Sequence[Sequence[float]]) -> float:
    return mean(loss for line in losses for loss in line)


def seq_mean_token_mean(losses: Sequence[Sequence[float]]) -> float:
    return mean(map(mean, losses))


def seq_mean_token_sum(losses: Sequence[Sequence[float]]) -> float:
    return mean(map(sum, losses))


def seq_sum_norm(losses: Sequence[Sequence[float]], horizon: int) -> float:
    return mean(sum(line) / horizon for line in losses)


def mean_of_learned(losses: Sequence[Sequence[float]]) -> float:
    """Mean over the learned tokens; other tokens have a loss of exactly 0."""
    learned = [loss for line in losses for loss in line if loss]
    return mean(learned) if learned else 0.0
