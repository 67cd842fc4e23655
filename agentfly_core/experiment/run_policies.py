"""Find the policy of a run in a store by the name of the run and a step."""

from dataclasses import dataclass

from agentfly_core.config.import_path import at
from agentfly_core.config.parts import TemplatePart
from agentfly_core.config.reference import LastPolicy, RunPolicy, SpeakerReference, policy_of_run
from agentfly_core.config.site import Site
from agentfly_core.experiment import keys
from agentfly_core.experiment.run_layout import RunLayout, done_by, record_of
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.text import nearest


@dataclass(frozen=True)
class Parent:
    """A policy of a run, and the name of this run: `Parent("nightly-2026-11-20", Pointer(...))`.

    Another run may start from this policy.
    """

    run: str
    policy: Pointer


def digest_of_speaker(store: Store, site: Site, role: str, who: SpeakerReference) -> str:
    """Return the digest of the policy or chat service (model API) `who` that plays `role`.

    Raises ValueError if the policy or the chat service is missing.
    """
    key = f"agent.frozen.{role}"
    if isinstance(who, RunPolicy):
        return of_run(store, who, key).policy.digest
    with at(key):
        return keys.chat_service(site.endpoint(who.name))


def of_run(store: Store, where: RunPolicy | LastPolicy, key: str) -> Parent:
    """Return the policy that `where` names, together with the name of its run.

    Step 0 is the policy before step 1. Raises ValueError if the policy is missing, or if its
    weights were removed. The message begins with `key`, the setting that names the policy.
    """
    with at(key):
        policy = (
            policy_of(store, where.run, where.step)
            if isinstance(where, RunPolicy)
            else final_policy(store, where.run)
        )
        stored = store.get(policy.uri)
        if stored and stored.manifest.get("stripped"):
            raise ValueError(
                f"The weights of {where} were removed. Name a step that was evaluated, or the "
                "run's last step. To keep the weights of all steps in later runs, set "
                "update.keep_policies=0."
            )
    return Parent(where.run, policy)


def inherited_template(store: Store, model: str, template: TemplatePart) -> TemplatePart:
    """Return the chat template of an experiment with the settings `model` and `template`.

    If `model` names a run and `template` is the default, the result is the template of the named
    run. Otherwise the result is `template`.
    """
    own = template == TemplatePart(use="default") and model.startswith("run:")
    parent = policy_of_run(model) if own else None
    if parent is None or (record := record_of(store, parent.run)) is None:
        return template  # a missing run is reported when its policy is looked up
    return TemplatePart.model_validate(record["settings"]["template"])


def last_policy(store: Store, name: str) -> Artifact | None:
    """Return the last policy of a run, or None if the run has not published a policy.

    For a run with `steps` 0, this is the policy of its warm start.
    """
    layout = RunLayout(name)
    policies = (store.get(layout.step(step).policy) for step in reversed(layout.steps(store)))
    # the newest step may have begun without having published a policy
    if policy := next(filter(None, policies), None):
        return policy
    record, start = record_of(store, name), store.read_json(layout.start)
    # only for `steps` 0: the start of a run that died in its first step is not its result
    if record is None or start is None or record["settings"]["steps"] != 0:
        return None
    return store.get(Pointer.of(start, layout.start).uri)


def final_policy(store: Store, name: str) -> Artifact:
    """Return the last policy of a run. Raises ValueError if the run has not published a policy."""
    if policy := last_policy(store, name):
        return policy
    names = store.names("runs")
    hint = "" if name in names else nearest(name, names)
    runs = ", ".join(names) or "none"
    raise ValueError(
        f"The run {name!r} has published no policy in {store.uri}.{hint} Runs in this store: "
        f"{runs}."
    )


def policy_of(store: Store, name: str, step: int) -> Pointer:
    """Return the policy of a step of a run. Step 0 is the policy before step 1.

    For a fork, the steps before the fork belong to the original run, which the fork continues.
    Raises ValueError if the policy is missing.
    """
    layout = RunLayout(done_by(store, name, step))
    if step == 0 and (start := store.read_json(layout.start)):
        return Pointer.of(start, layout.start)
    if policy := store.get(layout.step(step).policy):
        return policy
    last = final_policy(store, name)
    raise ValueError(
        f"The run {name!r} has no policy of step {step} in {store.uri}; the run's last policy is "
        f"{last.uri}."
    )


def require_same_tokens(store: Store, what: str, theirs: Pointer, ours: Pointer) -> None:
    """Raise ValueError if two policies use different tokenizers.

    `what` is the setting that names the policy `theirs`, for the message of the error.
    """
    one, other = (store.part(policy, "tokenizer.json") for policy in (theirs, ours))
    if one is None or one != other:
        raise ValueError(
            f"{what}: {theirs.uri} must have the same tokenizer.json as the trained model "
            f"{ours.uri}. Name a run that starts from {ours.uri}."
        )
