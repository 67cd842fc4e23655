"""The report of a night (nightly training run). It is a Markdown page that is computed from the
files in the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import (
    RunLayout,
    StepMetrics,
    metrics_of,
    record_of,
    summary_of,
)
from agentfly_core.pipeline.stop_conditions import due
from agentfly_core.records.messages import read_text, said_text
from agentfly_core.records.run_record import RunRecord, Summary
from agentfly_core.records.speakers import answering, by_episode
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.reports.nights.night_ledger import DECIDED, Judgement, NightEntry, NightLedger
from agentfly_core.reports.nights.promotion_gate import Verdict
from agentfly_core.reports.show.choice import StoredEpisode
from agentfly_core.reports.show.markdown import fenced, marked, plain, table
from agentfly_core.reports.show.printed import Twice, most_changed
from agentfly_core.runs.episodes import Pair, Piece, spans
from agentfly_core.runs.run import experiment_of_run, recorded_settings
from agentfly_core.runs.summary import Evaluations, run_ledger
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store

TOKENS = "rollout/avg_sampled_tokens"
LEGEND = (
    "Each section shows a test problem, first as the champion and then as this night's policy "
    "played it, with the same seed. The model wrote the lines marked `>` and read the lines marked "
    "`|`. Lines marked `.` came after its last reply."
)
CHANGED = 3
"""A report shows at most this number of episodes with a higher reward than the champion's, and at
most this number with a lower reward.
"""


def night_page(store: Store, night: str) -> str:
    """Return the Markdown page of a night (nightly training run).

    The first line has the last decision about the night's policy, such as "promoted".

    Raises ValueError if the night is unfinished, or if the night's policy was not compared with the
    champion. Raises FileNotFoundError if the night's dataset is missing.
    """
    stored = _StoredNight.of(store, night)
    verdict, champion = stored.judgement.verdict, stored.judgement.champion
    challenger = stored.judgement.challenger
    episodes = changed(stored.played(champion.policy), stored.played(challenger.policy))
    sections = [
        f"# {plain(night)} of {plain(stored.experiment.name)}: {stored.outcome()}",
        f"Success on the test problems was {stored.summary['success_before']:.1%} before the night "
        f"and is {stored.summary['success_after']:.1%} after it.",
        f"`agentfly open mlflow {night}` opens the night's curves and episodes, `agentfly open "
        f"prefect {night}` opens its flow run, and `agentfly report {night}` writes this page "
        "again.",
        "## Against the champion",
        f"{plain(verdict.why, 2000)} The champion was {champion.reference}.",
        _comparisons(verdict),
        "## Health signs",
        stored.signs(),
        "## What happened, and what it took",
        stored.events(),
        stored.effort(),
        "## Episodes that changed",
        LEGEND,
        *map(shown, episodes),
    ]
    return "\n\n".join(sections) + "\n"


def _comparisons(verdict: Verdict) -> str:
    rows = []
    for one in verdict.comparisons:
        values = (f"{one.champion:.4g}", f"{one.challenger:.4g}")
        difference = (f"{one.difference:+.3f}", f"{one.bound:+.3f}", f"above {0.0 - one.margin:g}")
        rows.append((plain(one.name), *values, *difference, "yes" if one.held else "no"))
    titles = ("compared", "champion", "this night", "difference", "at least", "must be", "holds")
    return table(titles, rows)


@dataclass(frozen=True)
class _StoredNight:
    """The stored records of a finished night. The methods compute sections of the night's page."""

    night: str
    experiment: Experiment
    record: RunRecord
    summary: Summary
    history: Sequence[NightEntry]
    judgement: Judgement
    steps: Sequence[StepMetrics]

    @classmethod
    def of(cls, store: Store, night: str) -> _StoredNight:
        """Load the records of a night (nightly training run).

        Raises ValueError if the night is unfinished, or if the night's policy was not compared
        with the champion.
        """
        record, summary = record_of(store, night), summary_of(store, night)
        entries = NightLedger(store, record["experiment"]).read().entries if record else []
        history = [entry for entry in entries if entry.night == night]
        judged = [entry.details for entry in history if isinstance(entry.details, Judgement)]
        if record is None or summary is None or not judged:
            raise ValueError(
                f"Got {night!r}, expected a finished nightly run in {store.uri} with a comparison "
                "to the champion. `agentfly nights EXPERIMENT` shows the events of each night."
            )
        settings = recorded_settings(record)
        steps = [metrics_of(store, RunLayout(night).step(n)) for n in settings.own_steps]
        return cls(
            night, experiment_of_run(record, store), record, summary, history, judged[-1], steps
        )

    def outcome(self) -> str:
        """Return the last decision about the policy of the nightly run, such as "promoted"."""
        decisions = [e.event for e in self.history if e.event in (*DECIDED, "demoted")]
        return decisions[-1].replace("_", " ")

    def played(self, policy: Pointer) -> Sequence[Pair]:
        """Read the episodes of a policy on the test problems, with their scores."""
        return Evaluations(self.experiment).episodes(policy, "test", self.experiment.dataset)

    def signs(self) -> str:
        """List the night's health signs (metrics that show failing training), and the steps with
        each sign.
        """
        steps: dict[str, list[int]] = {}
        for step in self.steps:
            for name in due(self.experiment.settings.health, step["metrics"]):
                steps.setdefault(name, []).append(step["step"])
        rows = [(plain(name), spans(numbers)) for name, numbers in steps.items()]
        return table(("sign", "at steps"), rows) if rows else "None was seen."

    def events(self) -> str:
        """Return a table of the nightly run's events, such as "began" and "promoted"."""
        rows = []
        for entry in self.history:
            why = "as above" if isinstance(entry.details, Judgement) else plain(entry.why)
            rows.append((*entry.cells, why))
        return table(("when", "event", "why"), rows)

    def effort(self) -> str:
        """Return a table with the steps, the hours and the tokens sampled for training.

        If the site's settings contain a price per hour, the table has the cost, too.
        """
        steps, hours = self.experiment.settings.steps, sum(self.summary["seconds"].values()) / 3600
        planned, price = (
            self.record.get("planned_steps", steps),
            self.record["site"].get("price_per_hour"),
        )
        ledger = run_ledger(self.experiment.store, self.night, self.experiment.settings.own_steps)
        episodes = ledger.groupby("step")["episodes"].sum()
        # metrics contain the mean over episodes
        tokens = sum(step["metrics"][TOKENS] * episodes[step["step"]] for step in self.steps)
        rows = [
            ("steps", f"{steps} of {planned}"),
            ("hours of all stages", f"{hours:.2f}"),
            ("tokens sampled to train on", f"{round(tokens):,}"),
        ]
        if price is not None:
            rows.append(("cost", f"{hours * price:,.2f} ({price:g} an hour)"))
        return table(("what", "how much"), rows)


def changed(champion: Sequence[Pair], challenger: Sequence[Pair]) -> list[Twice]:
    """Return the pairs of episodes with the largest differences in reward.

    A pair is an episode of the challenger and one of the champion, for the same problem. The
    list begins with the challenger's largest gains in reward, at most CHANGED pairs. Its largest
    losses follow, also at most CHANGED pairs. If an episode has several speakers (agents), only the
    speaker that set the answer is compared. If no speaker set an answer, the speaker that
    replied first is compared. A pair is skipped if one of its two rewards is missing.
    """
    old, new = _by_place(champion), _by_place(challenger)
    twice = [Twice(new[place], old[place]) for place in sorted(old.keys() & new.keys())]
    gains = [each for each in most_changed(twice, "best", CHANGED) if (each.change or 0) > 0]
    losses = [each for each in most_changed(twice, "worst", CHANGED) if (each.change or 0) < 0]
    return [*gains, *losses]


def shown(twice: Twice) -> str:
    """Return the report's section about a problem that the champion and the challenger played.

    The section has the reward and the conversation of each policy.
    """
    ((champion, _),), ((challenger, _),) = twice.against.conversations, twice.shown.conversations
    problem, before, after = challenger.problem, twice.against.reward, twice.shown.reward
    assert before is not None and after is not None, "its reward changed"
    texts = [
        marked([Piece("read", problem.prompt)], 800),
        "the champion:",
        marked(conversation(champion), 1200),
        "this night:",
        marked(conversation(challenger), 1200),
    ]
    title = f"### {plain(problem.id, 100)}: reward {before:.4g} → {after:.4g}"
    return "\n\n".join([title, fenced("\n".join(texts))])


def conversation(trajectory: Trajectory) -> list[Piece]:
    """Return the replies and the tools' answers of an episode as pieces of text.

    The problem and special tokens are left out.
    """
    pieces: list[Piece] = []
    for number, turn in enumerate(trajectory.turns):
        if number:
            pieces += [Piece("read", read_text(item)) for item in turn.read]
        pieces.append(Piece("sampled", said_text(turn)))
    return pieces + [Piece("after", read_text(item)) for item in trajectory.closing]


def _by_place(pairs: Sequence[Pair]) -> Mapping[tuple[str, int], StoredEpisode]:
    answered = {answering(one).id for one in by_episode([trajectory for trajectory, _ in pairs])}
    episodes = [StoredEpisode((pair,)) for pair in pairs if pair[0].id in answered]
    return {episode.place: episode for episode in episodes}
