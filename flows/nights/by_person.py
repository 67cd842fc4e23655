"""Promotion and demotion of a champion by a person."""

from __future__ import annotations

from agentfly_core.config.reference import LastPolicy, RunPolicy, run_policy
from agentfly_core.config.site import Site
from agentfly_core.experiment import keys
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.reports.nights.night_ledger import Champion, NightLedger
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.store.store import Store
from flows.experiments import load_experiment
from flows.run_pages import report_aliases


def promote(store: Store, run: str) -> str:
    """Make the policy RUN or RUN@STEP the champion of its experiment; returns a sentence.

    Raises ValueError if the next night could not start from it.
    """
    policy = run_policy(run)
    record = known_run(store, policy.run)
    if isinstance(policy, LastPolicy):
        policy = RunPolicy(policy.run, recorded_settings(record).steps)
    champion = Champion(policy, of_run(store, policy, "RUN").policy)
    ledger = NightLedger(store, record["experiment"])
    if (current := ledger.read().champion) and current.policy == champion.policy:
        return f"It is the champion of {record['experiment']} already: {current.reference}."
    experiment = load_experiment(record["experiment"], [], record["site"]["name"], store.uri)
    state = keys.learner(store.resolve(champion.policy).key)
    if experiment.settings.update.optimizer_state == "parent" and not store.holds(state.uri):
        raise ValueError(
            f"{policy} has no learner state, but update.optimizer_state is parent in "
            f"conf/{experiment.name}.yaml. Name a step that has one, or set it to fresh."
        )
    ledger.append(policy.run, "promoted", "A person promoted it on the command line.", champion)
    report_aliases(ledger, experiment.site)
    return f"The champion of {record['experiment']} is {policy}; the next night starts from it."


def demote(store: Store, name: str, site: Site) -> str:
    """Withdraw the champion of an experiment; returns a sentence. Raises ValueError without one."""
    ledger = NightLedger(store, name)
    champion = ledger.read().champion
    if champion is None:
        raise ValueError(f"The experiment {name!r} has no champion.")
    ledger.append(champion.reference.run, "demoted", "A person demoted it on the command line.")
    report_aliases(ledger, site)
    return f"{champion.reference} is no longer the champion. {ledger.read().champion_in_words}"
