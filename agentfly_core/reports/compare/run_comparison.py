"""Compare policies on the same held-out problems. Policies with equal settings form a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from agentfly_core.config.experiment import Settings
from agentfly_core.config.reference import RunPolicy, run_policy
from agentfly_core.config.section import resumable
from agentfly_core.experiment.own_modules import top_of
from agentfly_core.experiment.run_layout import finished_summary
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.experiment.task import goal_of
from agentfly_core.experiment.user_code import modules_of
from agentfly_core.records.run_record import RunRecord
from agentfly_core.reports.compare.seed_intervals import Estimate, Solved, difference, success
from agentfly_core.reports.show.sources import evaluations, held_out, solved_held_out
from agentfly_core.runs.listing import continuing, experiment_of, in_store, typed
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.json_value import JSON, flat
from agentfly_core.system.formats.text import counted

STEP = "step"
CODE = "code."


@dataclass(frozen=True, slots=True)
class TriedPolicy:
    """A policy of a run and its evaluation on held-out problems.

        TriedPolicy("quickstart-1f2e3d4c", 15, 0, 0, {"update.learning_rate": 0.0003, ...},
                    "f491...84", "agentfly_core.rewards.exact:exact", {"add-41-58": 1.0, ...})

    - `run`, `step`: the name of the run, and the step that ends with this policy
    - `seed`, `data_seed`: the seeds of the run and of its data
    - `settings`: the step, and the settings of the run, without both seeds and without settings
      that may change when a run is resumed
    - `problems`: the digest of the file with the held-out problems
    - `goal`: the reward that decides success
    - `solved`: for each problem, the share of its episodes that are solved. Empty if the policy is
      not evaluated yet.
    - `code`: the digests of the user's functions and classes: `{"my_shop.price": "77b0c2a1"}`
    """

    run: str
    step: int
    seed: int
    data_seed: int
    settings: Mapping[str, JSON]
    problems: str
    goal: str
    solved: Solved = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The text that names the policy in commands: `quickstart-1f2e3d4c@15`."""
        return f"{self.run}@{self.step}"


def tried(store: Store, reference: str, split: str) -> TriedPolicy:
    """Read the evaluation of a policy on held-out problems.

    `reference` is NAME@STEP, or NAME for the last policy of a finished run. `split` is a split, or
    the name of a dataset in the setting evaluate.datasets. Raises ValueError if the run is missing
    or not finished, or if the policy was not evaluated on these problems.
    """
    policy = run_policy(reference)
    run = policy.run
    record = known_run(store, run)
    settings = recorded_settings(record)
    step = policy.step if isinstance(policy, RunPolicy) else settings.steps
    if not isinstance(policy, RunPolicy) and finished_summary(store, run, step) is None:
        raise ValueError(
            f"The run {run!r} is not finished. To finish it: {continuing(store, run, record)}"
        )
    policy_of(store, run, step)  # raises an error for a missing step
    _, data, part = held_out(store, record, split)
    pairs = evaluations(store, record, run, split)(step)
    solved = solved_held_out(pairs, goal_of(settings.goal, settings.rewards))
    if not solved:
        raise ValueError(_not_evaluated(store, record, f"{run}@{step}", split))
    without = planned(settings, run, step, problems_digest(store, data, part))
    return replace(without, solved=solved, code=record["code"]["parts"])


def _not_evaluated(store: Store, record: RunRecord, policy: str, split: str) -> str:
    if split == "validation":
        return (
            f"{policy} was not evaluated on the validation problems. To evaluate during training, "
            "set evaluate.every."
        )
    what, overrides = experiment_of(record)
    words = ("agentfly", "evaluate", what, *overrides, "--policy", f"run:{policy}")
    return (
        f"{policy} was not evaluated on the {split} problems. To evaluate it: "
        f"{in_store(store, *words)}"
    )


def problems_digest(store: Store, data: Pointer, split: str) -> str:
    """Return the digest of the file with the problems of a split."""
    # not of the whole dataset: policies with different training problems can be compared
    return store.resolve(data).manifest["files"][f"{split}.parquet"]["sha256"]


def planned(settings: Settings, run: str, step: int, problems: str) -> TriedPolicy:
    """Describe a policy by the settings of its run. The policy need not be trained yet.

    The fields `solved` and `code` of the result are empty.
    """
    # compared policies have the same held-out problems under any seed
    free = {*resumable(Settings), "seed", "data.seed"}
    entries = flat(settings.model_dump(mode="json", exclude={"fork", "code"}))
    code = {f"{CODE}{name}": digest[:8] for name, digest in modules_of(settings.code).items()}
    kept = {
        key: value
        for key, value in entries.items()
        if not any(f"{key}.".startswith(f"{name}.") for name in free)
    }
    origin = None
    if settings.fork:
        fresh = "" if settings.inherits_learner else " fresh"
        origin = f"{settings.fork.run}@{settings.fork.step}{fresh}"
    compared = {**kept, **code, "fork": origin, STEP: step}  # instead of `steps`
    seed, data_seed = settings.seed, settings.of_data.seed
    return TriedPolicy(run, step, seed, data_seed, compared, problems, settings.goal)


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """A group of policies from runs that differ only in the seed.

        SeedGroup({"update.learning_rate": 0.0003}, (TriedPolicy("fast-0", ...), ...),
              Estimate(0.912, (0.893, 0.931), "problems and seeds"),
              Estimate(0.041, (0.02, 0.062), "problems and seeds"))

    `differs` has the settings that distinguish this group from the other groups. `difference` is
    the success of this group minus the success of the first group of the comparison. It is None for
    the first group.
    """

    differs: Mapping[str, JSON]
    policies: tuple[TriedPolicy, ...]
    success: Estimate
    difference: Estimate | None

    @property
    def label(self) -> str:
        """A label for the group.

        If `differs` has only one setting, the label is this setting with its value, such as
        `update.learning_rate=3e-4`. Otherwise the label is the property `runs`, such as
        `mine@15 and 2 more seeds`.
        """
        if len(self.differs) == 1:
            ((key, value),) = self.differs.items()
            return f"{key}={shown(value)}"
        return self.runs

    @property
    def runs(self) -> str:
        """The name of the group's first policy, and the number of its other policies, which have
        other seeds: `mine@15 and 2 more seeds`.
        """
        first, *more = (policy.name for policy in self.policies)
        return f"{first} and {counted(len(more), 'more seed')}" if more else first

    def to_json(self) -> dict[str, JSON]:
        """Return the group as JSON. Success is a share from 0 to 1."""
        return {
            "settings": dict(self.differs),
            "policies": [policy.name for policy in self.policies],
            "seeds": [policy.seed for policy in self.policies],
            "success": _as_json(self.success),
            "difference": _as_json(self.difference) if self.difference else None,
        }


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Groups of policies that are compared on the same held-out problems.

    The first group is the base, with which all other groups are compared. `problems` is the number
    of the problems. `left_out` is the number of problems that were skipped, because at least one
    policy lacks a scored episode of the problem.
    """

    groups: tuple[SeedGroup, ...]
    problems: int
    left_out: int

    @property
    def sentence(self) -> str:
        """A sentence that compares the base (the first group) with the best of the other groups.

        The best group has the highest success rate. Without other groups, the sentence only reports
        the success of the base.
        """
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
        # the best of several groups is the best partly by chance; the interval ignores this
        many = f"; the best of {len(others)} other groups" if len(others) > 1 else ""
        return (
            f"{best.label} solves {abs(points):.1f} percentage points {how} problems than {than} "
            f"({interval}, {seeds}{many}){sure}."
        )

    def to_json(self) -> dict[str, JSON]:
        """Return the comparison as JSON."""
        return {
            "sentence": self.sentence,
            "problems": self.problems,
            "left_out": self.left_out,
            "groups": [group.to_json() for group in self.groups],
        }


def compared(policies: Sequence[TriedPolicy]) -> RunComparison:
    """Group policies by their settings, and compare each group with the group of the first policy.

    Only problems on which every policy has a scored episode are compared. Raises ValueError if
    there are fewer than two such problems. Also raises ValueError if the policies have different
    problems or goals, or if two policies have the same settings and seed.
    """
    require_comparable(policies)
    by_settings: dict[str, list[TriedPolicy]] = {}
    for policy in policies:
        # grouped by text, because settings contain lists, which cannot be keys
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
    """Return the settings of each policy, with an entry for each function of the user's code.

    The entry compares the function with the code of the first policy: `{"code.my_shop.price":
    "changed"}`. If any policy lacks digests of a package's functions, the entries of this package
    are the digests of its modules: `{"code.my_shop": "77b0c2a1"}`.
    """
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
    """Return a word for a version of a function: "unchanged", "changed" or "version 3".

    `versions` lists the digests of all versions of the function, and `version` is one of them. The
    first digest gives "unchanged", the second "changed", and the third "version 3". None instead of
    a digest means that a policy's code lacks the function.
    """
    number = versions.index(version)
    return ("unchanged", "changed")[number] if number < 2 else f"version {number + 1}"


def _common(policies: Sequence[TriedPolicy]) -> list[str]:
    """Return the ids of the problems for which every policy has a scored episode.

    Raises ValueError if there are fewer than two such problems.
    """
    first, *others = (policy.solved for policy in policies)
    common = [problem for problem in first if all(problem in other for other in others)]
    if len(common) < 2:
        raise ValueError(
            f"Problems with a scored episode of every policy: {len(common)}, expected at least 2. "
            "Evaluate the policies on the same problems."
        )
    return common


def require_comparable(policies: Sequence[TriedPolicy]) -> None:
    """Raise ValueError if policies cannot be compared.

    This is the case if the policies have different problems or goals, or if two policies have the
    same settings and the same seed.
    """
    first, identity = policies[0], attrgetter("settings", "seed", "data_seed")
    for number, other in enumerate(policies):
        if other.goal != first.goal:
            raise ValueError(
                f"{first.name} and {other.name} cannot be compared: evaluate.goal is {first.goal} "
                f"in {first.name}, but {other.goal} in {other.name}."
            )
        if other.problems != first.problems:
            keys = _differing([first.settings, other.settings])
            data = [key for key in keys if key.startswith("data.")] or ["seed"]
            raise ValueError(
                f"{first.name} and {other.name} cannot be compared: they were evaluated on "
                f"different problems (because of {', '.join(data)}). Use the same data. For runs "
                "with several seeds, set the same data.seed, as `agentfly sweep` does."
            )
        for earlier in policies[:number]:
            if identity(earlier) == identity(other):
                raise ValueError(
                    f"{earlier.name} and {other.name} have the same settings and the same seed: "
                    "name only one of them."
                )


def shown(value: JSON) -> str:
    """Format the value of a setting as a user would type it: 3e-4, true, [1, 2]."""
    if isinstance(value, float):
        exact = repr(value)
        mantissa, _, exponent = f"{value:e}".partition("e")
        short = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
        return short if value and abs(int(exponent)) > 2 else exact
    return typed(value)


def _differing(settings: Sequence[Mapping[str, JSON]]) -> list[str]:
    """Return the keys with values that differ between the mappings in `settings`."""
    keys = dict.fromkeys(key for each in settings for key in each)
    return [key for key in keys if len({_written(each.get(key)) for each in settings}) > 1]


def _written(value: JSON | Mapping[str, JSON]) -> str:
    return strict_yaml.dump(value)


def _as_json(estimate: Estimate) -> dict[str, JSON]:
    low, high = estimate.interval
    return {"value": estimate.value, "interval": [low, high], "over": estimate.source}
