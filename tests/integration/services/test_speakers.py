"""Several speakers in one update of the real learner."""

import math
from dataclasses import replace

from agentfly_core.testing.learning import update_job
from tests.support.generated_trajectories import crowd
from tests.support.learner_jobs import digests, saved, settings

NAN = float("nan")


def critics(trajectories, logprob=-0.5):
    """A frozen critic for each episode, which has the same tokens and this log-probability."""
    return [
        replace(
            one,
            id=f"{one.id}-critic",
            agent="critic",
            policy="run:demo@7",
            turns=tuple(_saying(turn, logprob) for turn in one.turns),
        )
        for one in trajectories
    ]


def _saying(turn, logprob):
    spans = [replace(span, logprobs=(logprob,) * len(span.tokens)) for span in turn.sampled]
    return replace(turn, sampled=tuple(spans))


def test_frozen_speakers_change_no_byte_of_an_update(learner, nano, tmp_path):
    played = crowd(6, 4)
    rewards = [float(index % 3 == 0) for index in range(24)]
    updates = {
        "alone": (played, rewards),
        "with critics": ([*played, *critics(played)], [*rewards, *rewards]),
        "with nonsense": ([*played, *critics(played, NAN)], [*rewards, *[NAN] * 24]),
    }
    metrics, policies = {}, {}
    for name, (trajectories, earned) in updates.items():
        folder = tmp_path / name
        folder.mkdir()
        job = update_job(folder, trajectories, earned, nano, update=settings(mini_batches=2))
        metrics[name] = learner.update(job)
        policies[name] = digests(saved(learner, folder / "saved")[0])
    assert all(math.isfinite(value) for value in metrics["with nonsense"].values())
    assert metrics["with nonsense"]["train/trajectories"] == 24
    assert policies["with nonsense"] == policies["with critics"] == policies["alone"]
    assert policies["alone"]["model.safetensors"] != digests(nano)["model.safetensors"]
