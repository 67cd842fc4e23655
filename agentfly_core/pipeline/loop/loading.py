"""Load an experiment by its name, with its site (machine settings) and its store."""

import os
from collections.abc import Callable, Sequence

from agentfly_core.config import loading as experiments
from agentfly_core.experiment import checks
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import record_of
from agentfly_core.experiment.run_policies import inherited_template
from agentfly_core.experiment.task import check_hidden_states
from agentfly_core.experiment.user_code import code_of, continued
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import flat


def load(
    experiment: str,
    overrides: Sequence[str],
    site: str,
    store: str,
    open_store: Callable[[str], Store],
    workers: int = 0,
) -> Experiment:
    """Load and check an experiment with its site (machine settings), and open its store.

    `store` is a path or an s3:// uri; "" means the store of the site. `open_store` is the function
    that opens the store. `workers` is the default number of workers for a site without this
    setting. Raises ValueError for a wrong setting. The message contains the setting's key.
    """
    read = experiments.read(experiment, overrides)
    tasks = checks.check(read.settings)
    place = experiments.site(site, store)
    if "workers" not in place.model_fields_set:
        place = place.model_copy(update={"workers": workers})
    checks.check_place(read.settings, place)
    checks.check_workers(read.settings.agent.speakers.values(), tasks, place)
    check_hidden_states(tasks, place)
    # otherwise DeepSpeed guesses the device when it is imported, and prints to the terminal
    os.environ.setdefault("DS_ACCELERATOR", place.device)
    opened = open_store(place.store)
    settings = read.settings
    # before the digests of the code, because these include the module of the template
    template = inherited_template(opened, settings.model, settings.template)
    settings = settings.model_copy(update={"template": template})
    code, fork = code_of(settings, tasks), settings.fork
    forked = record_of(opened, fork.run) if fork else None
    # a fork reuses its origin's dataset and demonstrations, so it keeps the digests of their code
    settings = settings.with_code(continued(code, forked) if forked else code)
    digests = flat({"code": settings.code})
    origin = {**read.origin, **dict.fromkeys(digests, "modules")}
    if settings.template != read.settings.template:
        inherited = flat({"template": settings.template.model_dump(mode="json")})
        origin |= dict.fromkeys(inherited, settings.model)
    checked = Experiment.of(read.name, read.settings, origin, place, opened, tasks=tasks)
    return checked.on(settings)
