"""An answer, or its absence, decides about the judged policy."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from agentfly_core.config.reference import RunPolicy
from agentfly_core.reports.nights.night_ledger import Champion, Judgement, NightLedger
from agentfly_core.reports.nights.promotion_gate import Verdict
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import Pointer
from flows import approval
from flows.approval import SPARE_S, Decision, promote
from tests.support.experiments import experiment as experiment_in

NIGHT, THIS = "nightly-2026-11-21", uuid4()
REIGNING = Champion(RunPolicy("nightly-2026-11-20", 2), Pointer("runs/n20/policy", "aa"))
JUDGED = Champion(RunPolicy(NIGHT, 1), Pointer("runs/n21/steps/000001/policy", "bb"))
OTHER = Champion(RunPolicy("mine", 7), Pointer("runs/mine/policy", "cc"))
YES = Decision(approve=True, reason="It reads well.")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NightLedger:
    """A night of two steps with a judged first policy that awaits approval."""
    experiment = experiment_in(tmp_path)
    monkeypatch.setattr(approval, "experiment_of_flow", lambda *_: experiment)
    monkeypatch.setattr(approval, "flow_run", SimpleNamespace(id=str(THIS)))
    for report in ("report_aliases", "report_night"):
        monkeypatch.setattr(approval, report, lambda *_: None)
    with opened(experiment, NIGHT):
        pass
    ledger = NightLedger(experiment.store, experiment.name)
    ledger.append("nightly-2026-11-20", "promoted", details=REIGNING)
    compared = Judgement(Verdict(()), REIGNING, JUDGED)
    ledger.append(NIGHT, "awaits_approval", "Success rose.", details=compared)
    return ledger


def answering(monkeypatch: pytest.MonkeyPatch, decision: Decision) -> None:
    """Answer at once."""

    async def paused(*_: object) -> Decision:
        return decision

    monkeypatch.setattr(approval, "apause_flow_run", paused)


def test_the_judged_policy_is_promoted_despite_later_steps(
    ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, YES)
    assert promote.fn("tiny", NIGHT).name == "Promoted"
    assert ledger.read().champion == JUDGED


def test_a_comparison_with_an_earlier_champion_promotes_nothing(
    ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append("mine", "promoted", details=OTHER)
    answering(monkeypatch, YES)
    assert promote.fn("tiny", NIGHT).name == "NotApproved"
    assert ledger.read().champion == OTHER
    assert ledger.read().entries[-1].why == (
        "The champion has changed to run:mine@7 since the comparison. To promote anyway: agentfly "
        f"promote {NIGHT}"
    )


def answer_at_deadline(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, object] | None
) -> list[object]:
    """Let Prefect return this answer after the deadline; return the forced states."""
    forced: list[object] = []

    def set_state(flow_run: UUID, state: object, force: bool) -> None:
        forced.append((flow_run, state.name, force))

    async def paused(form: type, limit: int, poll_interval: int, key: str) -> Decision:
        assert limit == SPARE_S, "Prefect's limit is later than ours"
        return await asyncio.Future()

    client = SimpleNamespace(set_flow_run_state=set_state)
    monkeypatch.setattr(approval, "get_client", lambda sync_client: nullcontext(client))
    monkeypatch.setattr(approval, "apause_flow_run", paused)
    monkeypatch.setattr(approval, "read_flow_run_input", lambda key, of: forced and answer)
    return forced


def test_no_answer_in_time_is_a_rejection_without_a_failure(
    ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced = answer_at_deadline(monkeypatch, None)
    ended = promote.fn("tiny", NIGHT, days=1e-9)
    assert (ended.is_completed(), ended.name) == (True, "NotApproved")
    assert forced == [(THIS, "Running", True)]
    assert ledger.read().entries[-1].why == "Nobody answered within 1e-09 days."
    assert ledger.read().champion == REIGNING


def test_an_answer_just_before_the_deadline_counts(
    ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_at_deadline(monkeypatch, YES.model_dump())
    assert promote.fn("tiny", NIGHT, days=1e-9).name == "Promoted"
    assert ledger.read().champion == JUDGED


def test_a_decision_on_the_command_line_is_kept(
    ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def promoted_meanwhile(*_: object) -> Decision:
        ledger.append(NIGHT, "promoted", details=JUDGED)
        return Decision(approve=False)

    monkeypatch.setattr(approval, "apause_flow_run", promoted_meanwhile)
    assert promote.fn("tiny", NIGHT).name == "Decided"
    assert ledger.read().champion == JUDGED
