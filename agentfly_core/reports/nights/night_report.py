"""The report of a night: a page of Markdown that is computed from the store alone, at any time.

Curves are bars of text: MLflow does not render Markdown, and a terminal cannot show pictures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import (
    RunLayout,
    StepMetrics,
    metrics_of,
    record_of,
    summary_of,
)
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.pipeline.stop_conditions import due
from agentfly_core.records.intervals import improvement
from agentfly_core.records.run_record import RunRecord, Summary
from agentfly_core.records.trajectory import Scored, Trajectory
from agentfly_core.reports.nights.episode_choice import choose, pairs, shown
from agentfly_core.reports.nights.held_out import evaluated_episodes
from agentfly_core.reports.nights.night_ledger import Judgement, NightEntry, NightEvent, NightLedger
from agentfly_core.reports.nights.promotion import Verdict
from agentfly_core.reports.show.markdown import plain, sparkline, table
from agentfly_core.runs.episodes import spans
from agentfly_core.runs.run import experiment_of_run, recorded_settings
from agentfly_core.runs.summary import Evaluation, Evaluations, run_ledger
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store

OUTCOMES: dict[NightEvent, str] = {
    "promoted": "its policy became the champion",
    "demoted": "its policy was the champion and was demoted",
    "awaits_approval": "its policy is better and waits for a person to approve it",
    "not_approved": "its policy was better and was not approved",
    "kept": "its policy did not pass the gate, the champion stays",
    "worse": "its policy is worse, the champion stays",
}
CURVES = {"reward in training": "rollout/reward", "success in training": "rollout/success"}
TOKENS = "rollout/avg_sampled_tokens"
START, END, CHAMPION = "the night's first policy", "its last policy", "the champion"


def night_page(store: Store, night: str) -> list[str]:
    """Compute the sections of a night's page; the first one is the outcome.

    Raises ValueError unless the night is finished and judged, and for a missing dataset.
    """
    stored = _StoredNight.of(store, night)
    outcome = [OUTCOMES[entry.event] for entry in stored.history if entry.event in OUTCOMES][-1]
    evaluations, verdict = stored.evaluations(), stored.judgement.verdict
    champion, challenger = stored.judgement.champion, stored.judgement.challenger
    episodes = choose(pairs(stored.played(champion.policy), stored.played(challenger.policy)))
    return [
        f"# {plain(night)} of {plain(stored.experiment.name)}: {outcome}",
        _gain(evaluations),
        f"`agentfly open mlflow {night}` opens its curves and episodes, `agentfly open prefect "
        f"{night}` its flow run; `agentfly report {night}` writes this page again.",
        "## Against the champion",
        f"{plain(verdict.why, 2000)} The champion was {champion.reference}.",
        _comparisons(verdict),
        "## Success on the test problems",
        _rates(evaluations),
        "## Learning curves",
        stored.curves(),
        "## Health signs",
        stored.signs(),
        "## What happened, and what it took",
        stored.events(),
        table(("what", "how much"), [*stored.effort().items()]),
        "## Episodes",
        "Test problems as the champion and then this night's policy played them, with the same "
        "seeds. The model wrote the lines marked `>` and read those marked `|`; lines marked `.` "
        "came after its last reply.",
        *(shown(kind, pair) for kind, pair in episodes),
    ]


def page_text(sections: Sequence[str], link: str = "") -> str:
    """Join a page's sections; `link` is Markdown that follows the first sentence."""
    return "\n\n".join(filter(None, [*sections[:2], link, *sections[2:]])) + "\n"


def _gain(evaluations: Mapping[str, Evaluation]) -> str:
    """Describe the rise of success on the problems that both policies have scored episodes of."""
    start, end = evaluations[START], evaluations[END]
    both = start.solved.keys() & end.solved.keys()
    solved = ({problem: each.solved[problem] for problem in both} for each in (start, end))
    gain, (low, high) = improvement(*solved)
    return (
        f"Success on the test problems was {start.success:.1%} before the night and is "
        f"{end.success:.1%} after it: {100 * gain:+.1f} points, 95 % interval {100 * low:+.1f} to "
        f"{100 * high:+.1f}."
    )


def _comparisons(verdict: Verdict) -> str:
    rows = []
    for one in verdict.comparisons:
        values = (f"{one.champion:.4g}", f"{one.challenger:.4g}")
        difference = (f"{one.difference:+.3f}", f"{one.bound:+.3f}", f"above {0.0 - one.margin:g}")
        rows.append((plain(one.name), *values, *difference, "yes" if one.held else "no"))
    titles = ("compared", "champion", "this night", "difference", "at least", "must be", "holds")
    return table(titles, rows)


def _rates(evaluations: Mapping[str, Evaluation]) -> str:
    rows = []
    for name, rate in evaluations.items():
        interval = "{:.1%} to {:.1%}".format(*rate.interval)
        rows.append((name, f"{rate.success:.1%}", interval, f"{len(rate.solved):,}"))
    return table(("policy", "success", "95 % interval", "problems"), rows)


@dataclass(frozen=True)
class _StoredNight:
    """The stored records of a judged night, and the parts of its page that need them."""

    night: str
    experiment: Experiment
    record: RunRecord
    summary: Summary
    history: Sequence[NightEntry]
    judgement: Judgement
    steps: Sequence[StepMetrics]

    @classmethod
    def of(cls, store: Store, night: str) -> _StoredNight:
        """Load a night; raises ValueError unless it is finished and judged."""
        record, summary = record_of(store, night), summary_of(store, night)
        entries = NightLedger(store, record["experiment"]).entries() if record else []
        history = [entry for entry in entries if entry.night == night]
        judged = [entry.details for entry in history if isinstance(entry.details, Judgement)]
        if record is None or summary is None or not judged:
            raise ValueError(
                f"{night!r} in {store.uri} is not a finished and judged night. `agentfly "
                "nights EXPERIMENT` shows the events of each night."
            )
        settings = recorded_settings(record)
        if store.get(StageKeys(settings).prepare().uri) is None:
            raise ValueError(
                f"The dataset of {night!r} is missing from {store.uri}, or its files have changed. "
                f"A report that was written before is {RunLayout(night).report}."
            )
        steps = [metrics_of(store, RunLayout(night).step(n)) for n in settings.own_steps]
        return cls(
            night, experiment_of_run(record, store), record, summary, history, judged[-1], steps
        )

    def evaluations(self) -> dict[str, Evaluation]:
        """Read the evaluations on the test problems; the champion's if it is another policy."""
        start = policy_of(self.experiment.store, self.night, 0)
        policies = {START: start, END: self.judgement.challenger.policy}
        if self.judgement.champion.policy.digest != start.digest:
            policies[CHAMPION] = self.judgement.champion.policy
        data = self.experiment.dataset
        return {
            name: Evaluations(self.experiment).stored(policies[name], "test", data)
            for name in policies
        }

    def played(self, policy: Pointer) -> list[tuple[Trajectory, Scored]]:
        """Read a policy's episodes on the test problems."""
        here = self.experiment
        shards = here.evaluation_keys(policy, here.dataset, "test")
        trajectories, scores = evaluated_episodes(here.store, StageKeys(here.settings), shards)
        by_id = {score.trajectory_id: score for score in scores}
        return [(trajectory, by_id[trajectory.id]) for trajectory in trajectories]

    def curves(self) -> str:
        """Draw the curves over the steps that have measured values."""
        here, curves = self.experiment, {}
        for title, name in CURVES.items():
            curves[title] = [m["metrics"][name] for m in self.steps if name in m["metrics"]]
        validation = curves.setdefault("success on validation", [])
        for step in self.steps:
            policy = here.store.artifact(RunLayout(self.night).step(step["step"]).policy)
            with suppress(FileNotFoundError):  # it was not evaluated
                evaluation = Evaluations(here).stored(policy, "validation", here.dataset)
                validation.append(evaluation.success)
        rows = []
        for title, values in curves.items():
            if values:
                ends = (values[0], values[-1], min(values), max(values))
                first, *others = (f"{value:.3f}" for value in ends)
                rows.append((title, first, sparkline(values), *others))
        return table(("curve", "first", "step by step", "last", "lowest", "highest"), rows)

    def signs(self) -> str:
        """List the health signs that were logged, with their steps."""
        steps: dict[str, list[int]] = {}
        texts = {}
        for step in self.steps:
            for name, sign in due(self.experiment.settings.health, step["metrics"]).items():
                steps.setdefault(name, []).append(step["step"])
                texts[name] = sign.message(step["metrics"], int(step["metrics"][f"health/{name}"]))
        rows = [(plain(name), spans(steps[name]), plain(text)) for name, text in texts.items()]
        return (
            table(("sign", "at steps", "at the last of them"), rows) if rows else "None was seen."
        )

    def events(self) -> str:
        """List the night's entries of the ledger."""
        rows = []
        for entry in self.history:
            when = datetime.fromtimestamp(entry.time_ms / 1000).strftime("%Y-%m-%d %H:%M")
            why = "as above" if isinstance(entry.details, Judgement) else plain(entry.why)
            rows.append((when, entry.event.replace("_", " "), why))
        return table(("when", "event", "why"), rows)

    def effort(self) -> dict[str, str]:
        """Sum up steps, time, tokens sampled for training, and the cost where it has a price."""
        steps, hours = self.experiment.settings.steps, self.hours()
        planned = self.record.get("planned_steps", steps)
        ledger = run_ledger(self.experiment.store, self.night, self.experiment.settings.own_steps)
        episodes = ledger.groupby("step")["episodes"].sum()
        tokens = sum(step["metrics"][TOKENS] * episodes[step["step"]] for step in self.steps)
        stages = [f"{plain(name)} {value:,.0f}" for name, value in self.summary["seconds"].items()]
        early = f" of {planned} (its hours were over)" if steps < planned else ""
        rows = {
            "steps": f"{steps}{early}",
            "attempts": f"{len(self._times('began'))}",
            "hours at work": f"{hours:.2f}",
            "seconds by stage": ", ".join(stages),
            "tokens sampled to train on": f"{round(tokens):,}",
        }
        price = self.record["site"].get("price_per_hour")
        if price is not None:
            rows["cost"] = f"{hours * price:,.2f} ({price:g} an hour)"
        return rows

    def hours(self) -> float:
        """Sum up the hours of all attempts, each from its start to its last recorded event."""
        judged = [e.time_ms for e in self.history if isinstance(e.details, Judgement)]
        ended = [*(step["time_ms"] for step in self.steps), *self._times("finished"), judged[-1]]
        began, spent = self._times("began"), 0
        for start, following in zip(began, [*began[1:], math.inf], strict=True):
            last = max((time for time in ended if start <= time < following), default=start)
            spent += last - start
        return spent / 3_600_000

    def _times(self, event: NightEvent) -> list[int]:
        return [entry.time_ms for entry in self.history if entry.event == event]
