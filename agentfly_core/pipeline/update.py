"""From what is on disk to one update of the policy, and back to disk: the policy, and the learner's state beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.stage_metrics import measured, measuring, timing
from agentfly_core.artifacts.store import Artifact, Slot, Store
from agentfly_core.config.experiment import Adapter, Science, Update
from agentfly_core.config.import_path import load
from agentfly_core.formats import hashing
from agentfly_core.models import adapter_artifact
from agentfly_core.pipeline.gates import stop_if_diverging
from agentfly_core.records.parquet import EPISODES, SCORES
from agentfly_core.runs.run import Lab, Run, require_same_tokens
from agentfly_core.system import files
from agentfly_core.system.progress import Progress, report
from agentfly_core.training.checkpointing import Saving
from agentfly_core.training.job import UpdateJob

SFT = {"use": "agentfly_core.algorithms.sft:SFT"}
WEIGHTS = "*.safetensors"
Watch = Callable[[int, int], None]
Save = Callable[[AbstractContextManager[Path]], None]


def fresh(policy: Artifact) -> str:
    """The label of a learner that has just started on this policy, without any history."""
    return f"fresh:{policy.digest}"


def step_job(run: Run, step: int) -> UpdateJob:
    """The update of step 1, 2, ..., from the stored policy of the step before and the stored scored episodes."""
    store, science, here = run.store, run.science, keys.of_step(run.name, step)
    before = policy_of(run, step - 1)
    policy, base = adapter_artifact.folders(store, before)
    reference, reference_base = adapter_artifact.folders(store, near) if (near := _reference(run)) else (None, None)
    shards = [store.artifact(f"{here}/{name}") for name in store.names(here) if name.startswith("rollout-")]
    algorithm = science.algorithm
    return UpdateJob(
        start=label_of(run, step - 1),
        end=label_of(run, step),
        policy=str(policy),
        learner=_learner_state(store, _policy_slot(run, step - 1)) if step > 1 else None,
        rollouts=tuple(str(store.open(shard) / EPISODES) for shard in shards),
        scores=str(store.open(store.artifact(f"{here}/scored")) / SCORES),
        algorithm={"use": algorithm.use, **algorithm.settings},
        rewards={load(path).name: weight for path, weight in science.rewards.items()},
        update=science.update.model_dump(mode="json"),
        batch=None,
        temperature=science.rollout.temperature,
        dtype=science.dtype,
        seed=hashing.seed(science.seed, "update", step),
        reference=str(reference) if reference else None,
        before=measured(store, before).metrics if step > 1 else {},
        adapter=_adapter(science),
        base=str(base) if base else None,
        reference_base=str(reference_base) if reference_base else None,
    )


def warm_start_job(lab: Lab, model: Artifact, demonstrations: Artifact, number: int) -> UpdateJob:
    """Round 1, 2, ... of the masked supervised fine-tuning."""
    science, warm_start = lab.science, lab.science.warm_start
    assert warm_start is not None
    here = keys.warm_start(science, model, demonstrations, number)
    before = keys.warm_start(science, model, demonstrations, number - 1)
    policy, base = adapter_artifact.folders(lab.store, lab.store.artifact(before.uri) if number > 1 else model)
    learning_rate = warm_start.learning_rate * (1 - (number - 1) / warm_start.rounds)
    return UpdateJob(
        start=before.key if number > 1 else fresh(model),
        end=here.key,
        policy=str(policy),
        learner=_learner_state(lab.store, before) if number > 1 else None,
        rollouts=(str(lab.store.open(demonstrations) / EPISODES),),
        scores=None,
        algorithm=SFT,
        rewards={},
        update=_supervised(science, learning_rate),
        batch=warm_start.batch,
        temperature=1.0,
        dtype=science.dtype,
        seed=hashing.seed(science.seed, "warm_start", number),
        reference=None,
        adapter=_adapter(science),
        base=str(base) if base else None,
    )


def publish(
    store: Store, saving: Saving, job: UpdateJob, before: Artifact, slot: Slot, save: Save | None, watch: Watch
) -> Artifact:
    """Run an update of the policy `before` and publish the one that it made, after the learner state of `before`.

    `save` gets the publication of the new learner state, where that shall be kept. Raises GateClosed, and
    publishes nothing, when the policy diverges.
    """
    for left in (keys.learner(slot), slot):  # a state and its policy belong together
        store.remove(left.uri)
    with store.publish(slot) as folder, measuring(folder) as metrics:
        metrics |= saving.learner.update(job, watch)
        stop_if_diverging(int(metrics["train/skipped_in_a_row"]))
        with timing(metrics, "time/checkpoint"):
            for old in filter(None, (job.policy, job.learner)):
                files.uncache(Path(old))
            saving.learner.save_policy(folder)
            if job.adapter:
                adapter_artifact.remember(folder, adapter_artifact.base_of(store, before) or before, Adapter(**job.adapter))
            if save:
                save(store.publish(keys.learner(slot)))
            else:
                saving.wait()
    return store.artifact(slot.uri)


def made(run: Run, slot: Slot, step: int) -> Artifact | None:
    """The policy of a step, if it is there; the run's newest counts only with the learner state that goes with it.

    Where the run died between the two, both are made again.
    """
    newest = not run.store.holds(f"{keys.of_step(run.name, step + 1)}/policy")
    if newest and keeps_state(run, step) and not run.store.holds(keys.learner(slot).uri):
        return None
    return run.store.find(slot)


def keeps_state(run: Run, step: int) -> bool:
    """Whether the learner state after this step goes to disk."""
    return step % run.science.update.learner_every == 0 or step == run.science.steps


def policy_of(run: Run, step: int) -> Artifact:
    """The policy that a step published; step 0 is the one that the run started from."""
    if step == 0:
        return run.start
    return run.store.artifact(f"{keys.of_step(run.name, step)}/policy")


def label_of(run: Run, step: int) -> str:
    """The label of the learner state after a step."""
    return fresh(run.start) if step == 0 else _policy_slot(run, step).key


def catch_up(run: Run, saving: Saving, step: int) -> None:
    """Run the updates before `step` again whose learner state neither the learner nor the disk has."""
    if saving.learner.label() == label_of(run, step - 1):
        return
    saving.wait()
    whole = (k for k in range(step - 1, 0, -1) if run.store.find(keys.learner(_policy_slot(run, k))))
    for earlier in range(next(whole, 0) + 1, step):
        saving.learner.update(step_job(run, earlier), watching("replay", earlier))


def retain(run: Run, step: int) -> None:
    """Remove what the settings of the update do not keep, if the newest learner state that has its policy verifies.

    The weights of a policy stay, too, when it was evaluated, and when updates may be run again from it or later steps
    sample from it.
    """
    keep, store = run.science.update, run.store
    states = [k for k in range(1, step + 1) if _has_both(run, k)]
    if not states or not store.whole(store.artifact(f"{keys.of_step(run.name, states[-1])}/learner")):
        return
    for old in states[: -keep.keep_learner]:
        store.remove(f"{keys.of_step(run.name, old)}/learner")
    needed = min(states[-keep.keep_learner :][0], step - run.science.rollout.max_staleness)
    first = min(needed, step + 1 - keep.keep_policies) if keep.keep_policies else 1
    for old in reversed(range(1, first)):
        if not run.evaluates(old) and not store.strip(f"{keys.of_step(run.name, old)}/policy", WEIGHTS):
            break


def require_space(lab: Lab, policy: Artifact, saving: Saving) -> None:
    """Raise OSError unless the disk can hold a learner state and a policy more, and a state that is on its way.

    The state is three float32 numbers a weight (master, and AdamW's two moments), and as many again for a critic that
    is a model of its own; the policy is one number of the model's dtype. Only an adapter's weights count where only
    they are trained.
    """
    folder, models = lab.store.root, 2 if lab.science.algorithm.make().critic == "model" else 1
    width = 2 if lab.science.dtype == "bfloat16" else 4
    size = _size(lab, policy, width)
    needed = size + models * size * 12 // width * (2 if saving.busy() else 1)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"{folder} has {free / 2**30:.1f} GiB free; an update of this model needs {needed / 2**30:.1f} GiB. "
            "Free some space and run the same command again."
        )


def _size(lab: Lab, policy: Artifact, width: int) -> int:
    """The bytes of the next policy, with so many for a number."""
    folder, base = adapter_artifact.folders(lab.store, policy)
    if lab.science.adapter:
        return width * adapter_artifact.weights(base or folder, lab.science.adapter)
    return sum(path.stat().st_size for path in folder.iterdir())


def watching(stage: str, step: int) -> Watch:
    """A listener for the optimizer steps of an update that reports them as progress of a stage."""
    return lambda done, total: report(Progress(stage, step, done, total))


def _has_both(run: Run, step: int) -> bool:
    """Whether a step has its learner state and the policy that goes with it."""
    return all(run.store.holds(f"{keys.of_step(run.name, step)}/{part}") for part in ("learner", "policy"))


def _reference(run: Run) -> Artifact | None:
    if run.science.algorithm.make().reference is None:
        return None
    if run.reference is None:
        return run.start
    require_same_tokens(run.store, "algorithm.kl.reference", run.reference, run.start)
    return run.reference


def _policy_slot(run: Run, step: int) -> Slot:
    scored = run.store.artifact(f"{keys.of_step(run.name, step)}/scored")
    return keys.policy(run.science, run.name, policy_of(run, step - 1), scored, step, run.reference)


def _adapter(science: Science) -> dict[str, object] | None:
    return science.adapter.model_dump(mode="json") if science.adapter else None


def _learner_state(store: Store, policy: Slot) -> str | None:
    found = store.find(keys.learner(policy))
    return str(store.open(found)) if found else None


def _supervised(science: Science, learning_rate: float) -> dict[str, object]:
    assert science.warm_start is not None
    epochs, share = science.warm_start.epochs_per_round, science.update.share_prefixes
    return Update(learning_rate=learning_rate, epochs=epochs, share_prefixes=share).model_dump(mode="json")
