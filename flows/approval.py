"""Let a person choose the champion: the policy with which the next nightly training run starts.

The person fills in a form in Prefect's UI, or uses the command line. A flow run is paused while the
form is open.
"""

import asyncio
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.flow_runs import apause_flow_run
from prefect.input import RunInput, keyset_from_base_key, read_flow_run_input
from prefect.runtime import flow_run
from prefect.states import Completed, Running
from pydantic import Field

from agentfly_core.config.reference import LastPolicy, RunPolicy, run_policy
from agentfly_core.config.site import Site
from agentfly_core.experiment import keys
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.reports.nights.night_ledger import (
    DECIDED,
    Champion,
    Judgement,
    NightEntry,
    NightLedger,
)
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.store.store import Store
from flows.experiments import load_experiment
from flows.flow_run import experiment_of_flow
from flows.nights.events import record
from flows.parameters import Days, ExperimentName, RunOfNight, SiteName, StoreUri
from flows.run_pages import artifact_key, report_aliases, report_night

SECONDS_OF_A_DAY = 86400
LOOK_S = 2
SPARE_S = 3600
"""Seconds by which Prefect's time limit for a paused flow run exceeds the person's time limit.

Prefect ends a paused flow run as Failed at Prefect's own time limit. The person's time limit must
end earlier, because only a flow run that is still paused can be resumed.
"""
KEY = "decision"
ANSWER = keyset_from_base_key(f"paused-{KEY}")["response"]
"""The key under which Prefect stores the submitted approval form (see Decision)."""


class Decision(RunInput):
    """The form in Prefect's UI in which a person approves or refuses a policy as the new champion.

    Example: `Decision(approve=True, reason="It reads well.")`.
    """

    approve: bool = Field(default=False, description="Whether the policy becomes the champion")
    reason: str = Field(default="", description="Reason, for the ledger")


@flow(name="promote", flow_run_name="promote {run}")
def promote(
    experiment: ExperimentName = "quickstart",
    run: RunOfNight = "",
    site: SiteName = "local",
    store: StoreUri = "",
    days: Days = 3.0,
) -> State[None]:
    """Wait for a person to approve the policy of a night (a nightly training run).

    The flow run holds no devices and no lock during this time. It ends in a state of the type
    Completed. The state's name is Promoted or NotApproved. The name is also NotApproved if no
    person answers within `days` days, or if another policy has become the champion meanwhile. If
    the policy needs no approval, or if a person decided on the command line meanwhile, the name is
    Decided.
    """
    loaded = experiment_of_flow(experiment, [], site, store)
    ledger = NightLedger(loaded.store, loaded.name)
    question = open_question(ledger, run)
    if question is None:
        return Completed(name="Decided", message=f"The policy of {run!r} needs no approval.")
    decision = _answer(loaded.name, question, days)
    if open_question(ledger, run) is None:
        return Completed(name="Decided", message="It was decided on the command line meanwhile.")
    ended = _record_decision(ledger, question, decision)
    report_aliases(ledger, loaded.site)
    report_night(ledger, loaded.site, run)
    return ended


def open_question(ledger: NightLedger, night: str) -> NightEntry | None:
    """Return the ledger's entry about a policy that needs a person's approval, or None.

    `night` is the name of the nightly training run that made the policy. The result is None if the
    policy needs no approval, if a person has already decided, or if no person answered in time.
    """
    last = ledger.read().last(night, *DECIDED)
    return last if last and last.event == "awaits_approval" else None


def _answer(experiment: str, question: NightEntry, days: float) -> Decision:
    """Show the approval form, and pause the flow run until a person answers.

    If nobody answers within `days` days, the policy is not approved.
    """
    text = (
        f"### {question.night}\n{question.why}\n\nIf you approve the policy, the next night "
        f"starts from it. [The report](/artifacts/key/{artifact_key('night', experiment)}) has "
        "episodes."
    )
    try:
        return asyncio.run(_paused(text, days * SECONDS_OF_A_DAY))
    except TimeoutError:
        this = UUID(flow_run.id)
        with get_client(sync_client=True) as client:
            # resume the flow run, because a paused flow run could only end as Failed. From now on,
            # Prefect refuses answers
            client.set_flow_run_state(this, Running(), force=True)
        if answer := read_flow_run_input(ANSWER, this):  # the person answered at the last moment
            return Decision.model_validate(answer)
        return Decision(reason=f"Nobody answered within {days:g} days.")


async def _paused(text: str, seconds: float) -> Decision:
    """Show the approval form and pause the flow run. Raises TimeoutError if nobody answers."""
    form = Decision.with_initial_data(description=text)
    async with asyncio.timeout(seconds):
        return await apause_flow_run(form, int(seconds) + SPARE_S, LOOK_S, KEY)


def _record_decision(ledger: NightLedger, question: NightEntry, decision: Decision) -> State[None]:
    """Record a person's decision in the ledger (the log of the nightly runs).

    If another policy has become the champion since the comparison, the approved policy is not
    promoted.
    """
    judged, run, champion = question.details, question.night, ledger.read().champion
    assert isinstance(judged, Judgement), "the gate asks"
    if decision.approve and (champion == judged.champion or champion is None):
        why = decision.reason or "A person approved the policy."
        record(ledger, run, "promoted", why, judged.challenger)
        return Completed(name="Promoted", message=why)
    why = decision.reason or "A person refused the policy."
    if decision.approve and champion:
        earlier = f"The champion has changed to {champion.reference} since the comparison"
        why = f"{earlier}. To promote anyway: agentfly promote {run}"
    record(ledger, run, "not_approved", why)
    return Completed(name="NotApproved", message=why)


def promote_run(store: Store, run: str) -> str:
    """Make a policy the champion of its experiment. Return a message for the user.

    `run` is RUN (the last policy of the run RUN) or RUN@STEP. Raises ValueError if the policy is
    missing. Also raises ValueError if its learner state is missing, and the experiment's setting
    `update.optimizer_state` is "parent".
    """
    policy = run_policy(run)
    record = known_run(store, policy.run)
    if isinstance(policy, LastPolicy):
        policy = RunPolicy(policy.run, recorded_settings(record).steps)
    champion = Champion(policy, of_run(store, policy, "RUN").policy)
    ledger = NightLedger(store, record["experiment"])
    if (current := ledger.read().champion) and current.policy == champion.policy:
        return f"{current.reference} is already the champion of {record['experiment']}."
    experiment = load_experiment(record["experiment"], [], record["site"]["name"], store.uri)
    state = keys.learner(store.resolve(champion.policy).key)
    if experiment.settings.update.optimizer_state == "parent" and not store.holds(state.uri):
        raise ValueError(
            f"{policy} has no learner state, but update.optimizer_state is 'parent' in "
            f"conf/{experiment.name}.yaml. Promote a step with a learner state, or set "
            "update.optimizer_state=fresh."
        )
    ledger.append(policy.run, "promoted", "A person promoted it on the command line.", champion)
    report_aliases(ledger, experiment.site)
    return f"The champion of {record['experiment']} is {policy}; the next night starts from it."


def withdraw(store: Store, name: str, site: Site) -> str:
    """Demote the champion of the experiment `name`. Return a message for the user.

    The previous champion, if any, becomes the champion again. Raises ValueError if the experiment
    does not have a champion.
    """
    ledger = NightLedger(store, name)
    champion = ledger.read().champion
    if champion is None:
        raise ValueError(f"The experiment {name!r} has no champion, so there is nothing to demote.")
    ledger.append(champion.reference.run, "demoted", "A person demoted it on the command line.")
    report_aliases(ledger, site)
    return f"{champion.reference} is no longer the champion. {ledger.read().champion_in_words}"
