"""Check that a model and the prompts of a dataset fit the token limits of an experiment.

Also check that the `facts` of problems have the keys that the experiment's settings name.
"""

from collections.abc import Sequence

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.models.adapter_artifact import config_of
from agentfly_core.models.model_config import require_positions
from agentfly_core.pipeline import playing
from agentfly_core.pipeline.workers.samplers import tokenizer_of
from agentfly_core.records.dataset import split
from agentfly_core.store.artifact import Pointer


def require_room(
    experiment: Experiment, model: Pointer, data: Pointer, names: Sequence[str]
) -> None:
    """Raise ValueError if a model or a dataset does not fit the limits of an experiment.

    The model must have enough positions for `agent.max_model_len`. Only problems in the splits
    `names` are checked. Each prompt must leave room for a reply. The `facts` of each held-out
    problem must contain the key in the setting `evaluate.by`. The `facts` of each training problem
    must contain the key in `rollout.curriculum.by`. An empty setting requires no key.
    """
    if config := config_of(experiment.store, model):
        limit = experiment.settings.agent.max_model_len
        require_positions(config, limit, experiment.settings.model)
    problems = {name: split(experiment.store.open(data), name) for name in names}
    everything = [problem for some in problems.values() for problem in some]
    playing.require_room(experiment.tasks, tokenizer_of(experiment.store, model), everything)
    for problem in problems.get("train", ()):
        experiment.schedule.kind_of(problem)
    for name in problems.keys() - {"train"}:
        playing.require_tags(experiment.settings.evaluate.by, problems[name])
