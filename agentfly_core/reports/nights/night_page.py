"""The report of a night as a page of Markdown, for a terminal, Prefect and MLflow.

Curves are bars of text: MLflow shows Markdown as it is written, and a terminal has no pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from agentfly_core.reports.nights.episode_choice import PairKind, PlayedPair, conversation
from agentfly_core.reports.nights.night_ledger import NightEvent
from agentfly_core.reports.nights.night_report import END, START, Effort, NightReport
from agentfly_core.reports.show.markdown import fenced, marked, plain, sparkline, table
from agentfly_core.runs.episodes import Piece

OUTCOMES: dict[NightEvent, str] = {
    "promoted": "its policy became the champion",
    "demoted": "its policy was the champion and was demoted",
    "awaits_approval": "its policy is better and waits for a person to approve it",
    "not_approved": "its policy was better and was not approved",
    "kept": "its policy did not pass the gate, the champion stays",
    "worse": "its policy is worse, the champion stays",
}
KINDS: dict[PairKind, str] = {
    "better": "Changed for the better",
    "worse": "Changed for the worse",
    "best": "Best",
    "worst": "Worst",
}


def page_of(report: NightReport, link: str = "") -> str:
    """The page; its first line says what became of the night, `link` is Markdown that stands below
    its first sentence.
    """
    outcome = [OUTCOMES[entry.event] for entry in report.history if entry.event in OUTCOMES][-1]
    title = f"# {plain(report.night)} of {plain(report.experiment)}: {outcome}"
    sections = [
        title,
        *_introduction(report, link),
        *_success(report),
        *_course(report),
        table(("what", "how much"), [*_effort(report.effort)]),
        "## Episodes",
        "Test problems as the champion and then this night's policy played them, with the same "
        "seeds. The model wrote the lines marked `>` and read those marked `|`; what is marked `.` "
        "came after its last word.",
        *(_episode(kind, pair) for kind, pair in report.episodes),
    ]
    return "\n\n".join(sections) + "\n"


def _introduction(report: NightReport, link: str) -> Iterator[str]:
    before, after = report.held_out[START].success, report.held_out[END].success
    gain, interval = report.gain
    low, high = (f"{100 * bound:+.1f}" for bound in interval)
    yield (
        f"Success on the test problems was {before:.1%} before the night and is {after:.1%} after "
        f"it: {100 * gain:+.1f} points, 95 % interval {low} to {high}."
    )
    if link:
        yield link
    yield (
        f"`agentfly open mlflow {report.night}` opens its curves and episodes, `agentfly open "
        f"prefect {report.night}` its flow run; `agentfly report {report.night}` writes this page "
        "again."
    )


def _success(report: NightReport) -> Iterator[str]:
    """How the policy does against the champion, and on the test problems."""
    yield "## Against the champion"
    yield f"{plain(report.verdict.why, 2000)} The champion was {plain(report.champion)}."
    rows = []
    for one in report.verdict.comparisons:
        values = (f"{one.champion:.4g}", f"{one.challenger:.4g}")
        difference = (f"{one.difference:+.3f}", f"{one.bound:+.3f}", f"above {0.0 - one.margin:g}")
        rows.append((plain(one.name), *values, *difference, "yes" if one.held else "no"))
    titles = ("compared", "champion", "this night", "difference", "at least", "must be", "holds")
    yield table(titles, rows)

    yield "## Success on the test problems"
    rates = []
    for who, rate in report.held_out.items():
        low, high = rate.interval
        interval = f"{low:.1%} to {high:.1%}"
        rates.append((who, f"{rate.success:.1%}", interval, f"{len(rate.solved):,}"))
    yield table(("policy", "success", "95 % interval", "problems"), rates)


def _course(report: NightReport) -> Iterator[str]:
    """The night from step to step, and from event to event."""
    yield "## Learning curves"
    curves = []
    for title, curve in report.curves.items():
        values = [value for _, value in curve]
        first, *others = (f"{x:.3f}" for x in (values[0], values[-1], min(values), max(values)))
        curves.append((title, first, sparkline(values), *others))
    yield table(("curve", "first", "step by step", "last", "lowest", "highest"), curves)

    yield "## Health signs"
    signs = []
    for one in report.signs:
        steps = ", ".join(map(str, one.steps))
        if len(one.steps) > 5:
            steps = f"{one.steps[0]} to {one.steps[-1]} ({len(one.steps)} of them)"
        signs.append((plain(one.name), steps, plain(one.text)))
    yield table(("sign", "at steps", "at the last of them"), signs) if signs else "None was seen."

    yield "## What happened, and what it took"
    events = []
    for entry in report.history:
        when = datetime.fromtimestamp(entry.time_ms / 1000).strftime("%Y-%m-%d %H:%M")
        why = "as above" if "verdict" in entry.details else plain(entry.why)
        events.append((when, entry.event.replace("_", " "), why))
    yield table(("when", "event", "why"), events)


def _effort(effort: Effort) -> Iterator[tuple[str, str]]:
    early = " (its hours were over)" if effort.steps < effort.planned else ""
    steps = f"{effort.steps} of {effort.planned}" if early else f"{effort.steps}"
    yield "steps", f"{steps}{early}"
    yield "attempts", f"{effort.attempts}"
    yield "hours at work", f"{effort.hours:.2f}"
    stages = [f"{plain(stage)} {seconds:,.0f}" for stage, seconds in effort.seconds.items()]
    yield "seconds by stage", ", ".join(stages)
    yield "tokens sampled to train on", f"{effort.tokens:,}"
    if effort.cost is not None:
        yield "cost", f"{effort.cost:,.2f} ({effort.price_per_hour:g} an hour)"


def _episode(kind: PairKind, pair: PlayedPair) -> str:
    champion, challenger = pair.champion, pair.challenger
    tokens = [one.trajectory.sampled_tokens for one in (champion, challenger)]
    facts = [f"reward {champion.reward:.4g} → {challenger.reward:.4g}"]
    earlier, later = champion.scored.rewards, challenger.scored.rewards
    facts += [
        f"{plain(name)} {earlier[name]:.4g} → {value:.4g}"
        for name, value in later.items()
        if name in earlier
    ]
    facts.append(f"{tokens[0]:,} → {tokens[1]:,} tokens")
    problem = challenger.trajectory.problem
    played = [
        marked([Piece("read", problem.prompt)], 800),
        "the champion:",
        marked(conversation(champion.trajectory), 1200),
        "this night:",
        marked(conversation(challenger.trajectory), 1200),
    ]
    parts = [
        f"### {KINDS[kind]}: {plain(problem.id, 100)}",
        "; ".join(facts),
        fenced("\n".join(played)),
    ]
    return "\n\n".join(parts)
