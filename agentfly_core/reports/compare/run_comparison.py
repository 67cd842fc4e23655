"""Comparison of policies on the same held-out problems, in groups of equal settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from agentfly_core.experiment.own_modules import top_of
from agentfly_core.reports.compare.seed_intervals import Estimate, difference, success
from agentfly_core.reports.compare.tried_policy import CODE, TriedPolicy
from agentfly_core.runs.listing import typed
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import counted


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """Policies of runs that differ in the seed only; `differs` are settings unlike other groups.

        SeedGroup({"update.learning_rate": 0.0003}, (TriedPolicy("fast-0", ...), ...),
              Estimate(0.912, (0.893, 0.931), "problems and seeds"),
              Estimate(0.041, (0.02, 0.062), "problems and seeds"))

    `difference` is None for the base group.
    """

    differs: Mapping[str, JSON]
    policies: tuple[TriedPolicy, ...]
    success: Estimate
    difference: Estimate | None

    @property
    def label(self) -> str:
        """The differing settings, or its policies without any."""
        named = [f"{key}={shown(value)}" for key, value in self.differs.items()]
        return " ".join(named) or ", ".join(policy.name for policy in self.policies)

    def to_json(self) -> dict[str, JSON]:
        """As JSON, with shares instead of percent."""
        return {
            "settings": dict(self.differs),
            "policies": [policy.name for policy in self.policies],
            "seeds": [policy.seed for policy in self.policies],
            "success": _as_json(self.success),
            "difference": _as_json(self.difference) if self.difference else None,
        }


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Groups on the same number of `problems`; the first one is the base.

    `left_out` problems lack a scored episode of a policy.
    """

    groups: tuple[SeedGroup, ...]
    problems: int
    left_out: int

    @property
    def sentence(self) -> str:
        """A sentence about the best group."""
        base, *others = self.groups
        if not others:
            low, high = base.success.interval
            return (
                f"{base.label} solves {base.success.value:.1%} of {self.problems} held-out "
                f"problems (95 % interval {low:.1%} to {high:.1%} over {base.success.source})."
            )
        best = max(others, key=attrgetter("success.value"))
        assert best.difference is not None
        points, (low, high) = 100 * best.difference.value, best.difference.interval
        than = base.label
        if len(base.differs) == 1:
            than = shown(*base.differs.values())
        how = "more" if points >= 0 else "fewer"
        interval = f"95 % interval {100 * low:+.1f} to {100 * high:+.1f}"
        sure = "" if low > 0 or high < 0 else ": no significant difference"
        mine, its = len(best.policies), len(base.policies)
        seeds = f"{mine} against {counted(its, 'seed')}"
        if mine == its:
            seeds = f"{counted(mine, 'seed')} each"
        many = f"; the best of {len(others)} others" if len(others) > 1 else ""
        return (
            f"{best.label} solves {abs(points):.1f} points {how} than {than} ({interval}, "
            f"{seeds}{many}){sure}."
        )

    def to_json(self) -> dict[str, JSON]:
        """As JSON."""
        return {
            "sentence": self.sentence,
            "problems": self.problems,
            "left_out": self.left_out,
            "groups": [group.to_json() for group in self.groups],
        }


def compared(policies: Sequence[TriedPolicy]) -> RunComparison:
    """Compare policies, grouped by settings, with the group of the first policy.

    Raises ValueError for other problems or goals, equal policies, and fewer than two common
    problems.
    """
    require_comparable(policies)
    by_settings: dict[str, list[TriedPolicy]] = {}
    for policy in policies:
        by_settings.setdefault(_written(policy.settings), []).append(policy)
    groups = list(by_settings.values())
    common = _common(policies)
    solved = [
        [{problem: policy.solved[problem] for problem in common} for policy in group]
        for group in groups
    ]
    named = _named([group[0] for group in groups])
    differing = _differing(named)
    made = tuple(
        SeedGroup(
            {key: settings.get(key) for key in differing},
            tuple(group),
            success(each),
            None if each is solved[0] else difference(solved[0], each),
        )
        for group, settings, each in zip(groups, named, solved, strict=True)
    )
    every = {problem for policy in policies for problem in policy.solved}
    return RunComparison(made, len(common), len(every) - len(common))


def _named(policies: Sequence[TriedPolicy]) -> list[dict[str, JSON]]:
    """Settings of policies, with changed functions by name instead of digests of shared modules."""
    shared = set.intersection(*({top_of(key) for key in policy.code} for policy in policies))
    versions = {
        key: list(dict.fromkeys(policy.code.get(key) for policy in policies))
        for key in sorted({key for policy in policies for key in policy.code})
        if top_of(key) in shared
    }
    kept = [
        {
            key: value
            for key, value in policy.settings.items()
            if not (key.startswith(CODE) and top_of(key.removeprefix(CODE)) in shared)
        }
        for policy in policies
    ]
    changes = [
        {f"{CODE}{key}": _change(each, policy.code.get(key)) for key, each in versions.items()}
        for policy in policies
    ]
    return [settings | change for settings, change in zip(kept, changes, strict=True)]


def _change(versions: Sequence[str | None], version: str | None) -> str:
    """A version of a function, counted from the base: unchanged, changed, version 3."""
    number = versions.index(version)
    return ("unchanged", "changed")[number] if number < 2 else f"version {number + 1}"


def _common(policies: Sequence[TriedPolicy]) -> list[str]:
    """Problems with a scored episode of each policy; raises ValueError for fewer than two."""
    first, *others = (policy.solved for policy in policies)
    common = [problem for problem in first if all(problem in other for other in others)]
    if len(common) < 2:
        raise ValueError(
            f"Got {counted(len(common), 'problem')} with a scored episode of each policy, "
            "expected 2 or more."
        )
    return common


def require_comparable(policies: Sequence[TriedPolicy]) -> None:
    """Raise ValueError for policies with other problems or goals, and for equal policies."""
    first = policies[0]
    for number, other in enumerate(policies):
        if other.goal != first.goal:
            raise ValueError(
                f"{first.name} and {other.name} cannot be compared: evaluate.goal is {first.goal} "
                f"and {other.goal}."
            )
        if other.problems != first.problems:
            keys = _differing([first.settings, other.settings])
            data = [key for key in keys if key.startswith("data.")] or ["seed"]
            raise ValueError(
                f"{first.name} and {other.name} cannot be compared: they are tried on other "
                f"problems ({', '.join(data)}). Use the same data, and one data.seed for several "
                "seeds, as `agentfly sweep` does."
            )
        for earlier in policies[:number]:
            if _tried_as(earlier) == _tried_as(other):
                raise ValueError(
                    f"{earlier.name} and {other.name} have the same settings and the same seed: "
                    "name one of them."
                )


def shown(value: JSON) -> str:
    """A value as typed: 3e-4, true, [1, 2]."""
    if isinstance(value, float):
        exact = repr(value)
        mantissa, _, exponent = f"{value:e}".partition("e")
        short = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
        return short if value and abs(int(exponent)) > 2 else exact
    return typed(value)


def _tried_as(policy: TriedPolicy) -> tuple[Mapping[str, JSON], int, int]:
    return policy.settings, policy.seed, policy.data_seed


def _differing(settings: Sequence[Mapping[str, JSON]]) -> list[str]:
    """Keys with different values, in order."""
    keys = dict.fromkeys(key for each in settings for key in each)
    return [key for key in keys if len({_written(each.get(key)) for each in settings}) > 1]


def _written(value: JSON | Mapping[str, JSON]) -> str:
    return strict_yaml.dump(value)


def _as_json(estimate: Estimate) -> dict[str, JSON]:
    low, high = estimate.interval
    return {"value": estimate.value, "interval": [low, high], "over": estimate.source}
