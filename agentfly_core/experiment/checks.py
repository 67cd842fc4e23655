"""Checks of the settings, which run before any other work. Error messages contain the remedy."""

from collections.abc import Iterable, Mapping, Sequence

from agentfly_core.authoring import injection
from agentfly_core.authoring.chat_template import ChatTemplate, ToolSchema
from agentfly_core.authoring.reward import Reward
from agentfly_core.config.episodes import Rollout
from agentfly_core.config.experiment import Settings, Update
from agentfly_core.config.import_path import algorithm_path, at, check_settings, construct, load
from agentfly_core.config.loading import GIVEN
from agentfly_core.config.parts import SELF, Part, WarmStart
from agentfly_core.config.promotion import Promotion
from agentfly_core.config.reference import (
    EndpointPolicy,
    HubModel,
    LocalModel,
    OwnNano,
    RunPolicy,
    SpeakerReference,
    chat_file,
    is_scripted,
    model_reference,
    run_step,
)
from agentfly_core.config.site import Site
from agentfly_core.config.tasks import task_key
from agentfly_core.datasets.chat_files import ChatFile
from agentfly_core.datasets.files import files, require_fields
from agentfly_core.datasets.rejection_sampling import RejectionSampling
from agentfly_core.experiment.policy_path import check_policy
from agentfly_core.experiment.task import Task, import_tasks, together
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.inference.templates.probes import report
from agentfly_core.models import model_config
from agentfly_core.models.known import require, require_weights
from agentfly_core.models.type_names import PreTrainedConfig, PreTrainedTokenizerBase
from agentfly_core.records.generated_dataset import is_generated
from agentfly_core.records.problem_schedule import ProblemSchedule
from agentfly_core.records.trajectory import Message
from agentfly_core.rl.interface import Algorithm, Needs
from agentfly_core.sandbox.confined import isolates


def check(settings: Settings) -> dict[str, Task]:
    """Import and check the tasks of an experiment. Raises ValueError if a setting is wrong."""
    # checked first, because `make` of a wrong class would raise another error
    _require_algorithm(settings.algorithm.use)
    tasks = import_tasks(settings)
    whole, algorithm = together(settings, tasks), settings.algorithm.make()
    name, rollout = settings.algorithm.use, settings.rollout
    _require_correction(name, settings.update, rollout.max_staleness, algorithm.needs)
    _compare_something(name, rollout, algorithm.needs, [*whole.rewards])
    _can_be_promoted(settings.promotion, tasks, [reward.name for reward in whole.rewards])
    for key, dataset in settings.further_datasets.items():
        with at(key):
            check_settings(load(dataset.use), dataset.settings, GIVEN["data"])
    _require_a_trained_speaker(whole)
    if settings.evaluate.every and not settings.data.validation:
        raise ValueError(
            f"evaluate.every is {settings.evaluate.every}, but data.validation is 0. Raise "
            "data.validation, or set evaluate.every=0."
        )
    if silent := [tool.name for tool in whole.tools if not tool.schema.description]:
        raise ValueError(
            f"The tool {silent[0]!r} lacks a description for the model: give its function a "
            "docstring, or set `@tool(description=...)`."
        )
    for part in whole.parts:
        part.ready()
    if settings.sandboxed:
        isolates()
    for flow, one in settings.flows.items():
        with at(f"flows.{flow}"):
            check_settings(load(one.use), one.settings, ["experiment"])
    _require_warm_start(settings.model, settings.warm_start)
    training = {name: task.settings.data.train for name, task in tasks.items()}
    quotas = settings.quotas(settings.rollout.problems)
    schedule = ProblemSchedule(settings.seed, settings.rollout, quotas, settings.night)
    # without steps, no training problem is needed
    if settings.steps:
        _require_problems(schedule, training)
    return tasks


def check_beginning(settings: Settings) -> None:
    """Raise ValueError for wrong token limits, batch sizes, warm-up steps, model or data files."""
    agent, rollout, update = settings.agent, settings.rollout, settings.update
    # only a value that the user has set must fit
    if "max_tokens" in agent.model_fields_set and agent.max_tokens > agent.max_model_len:
        raise ValueError(
            f"agent.max_tokens is {agent.max_tokens}, but agent.max_model_len limits an episode to "
            f"{agent.max_model_len} tokens, including the prompt. Lower agent.max_tokens."
        )
    if update.mini_batches > (episodes := rollout.problems * rollout.group_size):
        raise ValueError(
            f"update.mini_batches is {update.mini_batches}, expected {episodes} or less. A step "
            "has rollout.problems x rollout.group_size episodes."
        )
    if update.decays and update.warmup_steps >= settings.steps > 0:
        raise ValueError(
            f"update.warmup_steps is {update.warmup_steps} but steps is {settings.steps}; lower "
            "warmup_steps."
        )
    check_inputs(settings)
    if update.weights or settings.warm_start:
        check_trainable(settings.model, update.share_prefixes)


def check_trainable(model: str, share_prefixes: bool) -> None:
    """Raise ValueError if `model` is a chat service, or an untrainable local or cached model."""
    with at("model"):
        require_weights(model_reference(model))
        if (config := _config_at_hand(model)) is not None:
            model_config.require_trainable(config, share_prefixes)


def check_inputs(settings: Settings) -> None:
    """Check the model and data files on this machine. Raises ValueError if they are unusable."""
    with at("model"):
        model = model_reference(settings.model)
        require(model)
        if (config := _config_at_hand(settings.model)) is not None:
            model_config.require_loadable(config, settings.model)
            model_config.require_positions(config, settings.agent.max_model_len, settings.model)
            if isinstance(model, LocalModel):
                tokenizer = model_config.tokenizer(settings.model)
                model_config.require_vocabulary(tokenizer, config, settings.model)
                settings.template.make(tokenizer=tokenizer)
    datasets = {task_key(name, "data"): task.data for name, task in settings.each.items()}
    datasets |= {key: dataset.data for key, dataset in settings.further_datasets.items()}
    for key, data in datasets.items():
        with at(key):
            if load(data.use) is files:
                require_fields(**check_settings(files, data.settings, GIVEN["data"]))
    # a fork uses the warm start of its origin
    shown = None if settings.fork else settings.warm_start
    if shown and (path := chat_file(shown.demonstrations)):
        with at("warm_start.demonstrations"):
            construct(ChatFile, shown.settings).require_chats(path)


def remarks(model: str, tasks: Mapping[str, Task]) -> list[str]:
    """Return a sentence for each likely mistake, such as a tool parameter without description."""
    remarks = []
    if isinstance(model_reference(model), HubModel) and _config_at_hand(model) is None:
        remarks = [f"model: {model!r} is not a folder; it is fetched from the Hugging Face hub."]
    for task in tasks.values():
        remarks += [
            f"The tool {tool.name!r}: {text}" for tool in task.tools for text in tool.untold()
        ]
        remarks += [f"{kind.__name__}: {kind.notice}" for kind in task.limits if kind.notice]
    return remarks


def template_report(model: str, part: Part) -> list[str]:
    """Return remarks on the chat template `part` for a model in a local folder.

    The model's own template is tested with sample messages. For any other template, there is a
    remark if its prompts differ from the prompts of the model's own template.
    """
    if not isinstance(model_reference(model), LocalModel):
        return []
    tokenizer = model_config.tokenizer(model)
    template = part.make(tokenizer=tokenizer)
    if isinstance(template, ModelTemplate):
        return report(template)
    if not tokenizer.chat_template or not _differs(template, tokenizer):
        return []
    return [
        f"{part.use}: chat servers write a different prompt, because they use the model's own chat "
        "template. To train in the model's format, set template=model."
    ]


def _differs(template: ChatTemplate, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer has a usable template that writes other prompts than `template`."""
    try:
        played = ModelTemplate(tokenizer)
    except ValueError:
        return False
    thinks = "<think>" in str(tokenizer.chat_template)
    written = Message("assistant", "<think>\nTwo.\n</think>\n\n2" if thinks else "2")
    own = Message("assistant", "2", reasoning="Two." if thinks else "")
    schema = ToolSchema("add", "Add.", {"type": "object", "properties": {"a": {"type": "number"}}})
    prompts = [
        each.open((Message("user", "1+1?"), reply, Message("user", "2+2?")), (schema,))
        for each, reply in ((template, written), (played, own))
    ]
    one, other = (str(tokenizer.decode(list(prompt))) for prompt in prompts)
    return one != other


def check_place(settings: Settings, place: Site) -> None:
    """Raise ValueError if the site (the machine) cannot run the experiment."""
    frozen = {f"agent.frozen.{role}": who for role, who in settings.agent.speakers.items()}
    with at("model"):
        model = model_reference(settings.model)
    for key, who in {"model": model, **frozen}.items():
        if isinstance(who, EndpointPolicy):
            with at(key):
                place.endpoint(who.name)
    if isinstance(model, EndpointPolicy) and settings.rollout.branching:
        settings.rollout.branching.check_service(model.name)
    if settings.rollout.max_staleness and place.shares_gpus:
        raise ValueError(
            f"rollout.max_staleness is {settings.rollout.max_staleness}, but vLLM on the GPUs "
            f"{list(place.sampler_gpus)} shares a GPU with the learner, so it cannot sample during "
            "updates. Set sampler_gpus and learner_gpus to different GPUs, or "
            "rollout.max_staleness=0."
        )
    on_gpu = (place.sampler, place.device) == ("vllm", "cuda")
    if settings.adapter and settings.dtype == "float32" and on_gpu:
        raise ValueError(
            "dtype is float32, but vLLM on a GPU supports an adapter only in bfloat16. Set "
            "dtype=bfloat16, or AGENTFLY_SAMPLER=transformers."
        )
    config = _config_at_hand(settings.model)
    if (place.sampler, place.device) == ("vllm", "cpu") and config is not None:
        with at("model"):
            model_config.require_served_on_cpu(config)
    if place.zero_stage == 0 and place.ranks > 1 and settings.dtype != "float32":
        raise ValueError(
            f"site.zero_stage is 0 with {place.ranks} ranks, but {settings.dtype} weights need "
            "ZeRO for their float32 copies. Set site.zero_stage to 1, 2 or 3."
        )


def check_workers(
    frozen: Iterable[SpeakerReference], tasks: Mapping[str, Task], place: Site
) -> None:
    """Raise ValueError if `site.workers` exceeds an environment's limit or overloads the GPU."""
    count = place.workers
    for limits in (task.limits for task in tasks.values()):
        for kind, limit in limits.items():
            if limit.limit < count:
                raise ValueError(
                    f"site.workers is {count}, but the limit of {kind.__name__} under "
                    f"`environments` is {limit.limit} for all workers together. Raise this limit, "
                    f"or set site.workers to {limit.limit} or less."
                )
    in_workers = place.sampler == "transformers" or any(isinstance(w, RunPolicy) for w in frozen)
    if count > 1 and in_workers and place.device == "cuda":
        raise ValueError(
            f"site.workers is {count}, but each worker would load all policies into the GPU "
            "(because of `sampler: transformers`, or a run in agent.frozen). Set site.workers=1."
        )


def _require_a_trained_speaker(whole: Task) -> None:
    name, agent = injection.name(whole.agent), whole.settings.agent
    if both := [role for role in agent.trained if role in agent.frozen]:
        raise ValueError(
            f"agent.train: got {both[0]}, but agent.frozen sets {both[0]} to "
            f"{agent.frozen[both[0]]}. Remove {both[0]} from one of the two settings."
        )
    who = agent.frozen.get(name, SELF)
    if who != SELF:
        raise ValueError(
            f"agent.frozen.{name}: this role is the agent itself and cannot be frozen (got {who}). "
            "Freeze a role that the agent creates with `episode.speaker(role)`. To use this policy "
            f"for the whole agent, run `agentfly evaluate EXPERIMENT --policy {who}`."
        )


def _require_warm_start(model: str, warm_start: WarmStart | None) -> None:
    if warm_start and is_scripted(warm_start.demonstrations):
        with at("warm_start"):
            check_policy(warm_start.demonstrations, warm_start.settings)
    elif warm_start:
        policy = run_step(warm_start.demonstrations)
        if policy and isinstance(model_reference(model), OwnNano):
            raise ValueError(
                f"model is {model}, whose tokenizer is made from the demonstrations, but the "
                f"episodes in {warm_start.demonstrations} use another tokenizer. Set model=run:"
                f"{policy.run}@0, or set warm_start.demonstrations to a function's import path."
            )
        with at("warm_start.settings"):
            check_settings(RejectionSampling if policy else ChatFile, warm_start.settings)


def _require_problems(schedule: ProblemSchedule, training: Mapping[str, int]) -> None:
    """Raise ValueError for too few problems, unknown tasks, or a nightly run with a curriculum."""
    night, curriculum = schedule.night, schedule.rollout.curriculum
    if night and (unknown := [*night.tasks.keys() - training.keys()]):
        raise ValueError(
            f"night.tasks: got {unknown[0]!r}, expected names of tasks: {', '.join(training)}."
        )
    if night and curriculum:
        raise ValueError(
            "rollout.curriculum: a nightly run plays the problems in a fixed order; remove "
            "rollout.curriculum."
        )
    refills = schedule.rollout.refills
    rounds = f" with rollout.refills={refills}" if refills else ""
    if curriculum:
        rounds += f"{' and' if rounds else ' with'} rollout.curriculum.window={curriculum.window}"
    for name, problems in training.items():
        if (needed := schedule.block_of(name)) > problems:
            raise ValueError(
                f"rollout.problems: a step needs {needed} problems{rounds}, but "
                f"{task_key(name, 'data.train')} is {problems}. Lower rollout.problems or add data."
            )


def _config_at_hand(named: str) -> PreTrainedConfig | None:
    """Return the config of a local model or a cached hub model, else None."""
    with at("model"):
        model = model_reference(named)
    return model_config.of_reference(model) if isinstance(model, HubModel | LocalModel) else None


def _require_algorithm(use: str) -> None:
    """Raise ValueError if `use` does not name an algorithm, or names sft, which ignores rewards."""
    with at("algorithm.use"):
        maker = load(use)
        # `refills` is only annotated in Algorithm, so `dir` does not list it
        public = ["refills", *(name for name in dir(Algorithm) if not name.startswith("_"))]
        if missing := [name for name in public if not hasattr(maker, name)]:
            raise ValueError(
                f"{use} is not an algorithm: it lacks {', '.join(missing)}. Expected a class like "
                "those in agentfly_core/algorithms."
            )
    if use == algorithm_path("sft"):
        raise ValueError(
            "algorithm is sft, which imitates all episodes regardless of their rewards: choose rft "
            "to imitate successes, or set warm_start to imitate demonstrations."
        )


def _can_be_promoted(promotion: Promotion, tasks: Mapping[str, Task], names: Sequence[str]) -> None:
    """Raise ValueError if `promotion` names an unknown reward.

    Also raise ValueError if `confirmation.use` is "fresh", but a dataset is not `@generated`.
    """
    for name in promotion.reward_margins:
        # the parts of a reward are unknown before it scores, so only the reward's name is checked
        if name.partition("/")[0] not in names:
            raise ValueError(
                f"promotion.reward_margins: got {name!r}, expected the name of a reward "
                f"({', '.join(names)}), or of a part of a reward, such as exact/tag."
            )
    for task in tasks.values() if promotion.confirmation.use == "fresh" else ():
        if not is_generated(load(use := task.settings.data.use)):
            raise ValueError(
                f"promotion.confirmation is fresh, but the dataset {use} is not marked "
                "@generated. If another seed generates other problems, mark the dataset with "
                "@generated; otherwise set promotion.confirmation=split."
            )


def _require_correction(use: str, update: Update, max_staleness: int, needs: Needs) -> None:
    """Raise ValueError if an off-policy correction is missing, applied twice or without effect."""
    if update.old_logprobs == "sampler" and not needs.old_logprobs:
        raise ValueError(
            f"update.old_logprobs is sampler, but {use} does not compare with an old policy. "
            "Remove update.old_logprobs, or choose an algorithm.policy_loss with a ratio, such as "
            "clip."
        )
    if needs.corrects_sampler and update.old_logprobs == "sampler":
        raise ValueError(
            "algorithm.correction and update.old_logprobs=sampler both correct for the difference "
            "between sampler and learner. Remove one of these two settings."
        )
    ratio = "an algorithm.policy_loss with a ratio, such as clip"
    if needs.off_policy == "none" and (steps := update.epochs * update.mini_batches) > 1:
        raise ValueError(
            f"update.epochs x update.mini_batches is {steps}, but {use} allows only 1 optimizer "
            "step. The loss of this algorithm has no ratio to the old policy. Set both to 1, or "
            f"choose {ratio}."
        )
    from_sampler = update.old_logprobs == "sampler" and needs.off_policy == "ratio"
    corrected = needs.corrects_sampler or from_sampler or needs.off_policy == "imitation"
    if max_staleness and not corrected:
        raise ValueError(
            f"rollout.max_staleness is {max_staleness}, but nothing corrects for episodes of an "
            "older policy. Choose an algorithm.correction, such as token_tis. Alternatively, set "
            f"update.old_logprobs=sampler, and choose {ratio}."
        )


def _compare_something(use: str, rollout: Rollout, needs: Needs, rewards: Sequence[Reward]) -> None:
    compares = needs.compares_group
    if compares and rollout.group_size == 1:
        raise ValueError(
            f"rollout.group_size is 1, but {use} learns from differences between several episodes "
            "of the same problem. Raise group_size, or choose ppo, remax or reinforce_pp."
        )
    comparing = [reward.name for reward in rewards if reward.compares]
    if comparing and needs.greedy_episode:
        raise ValueError(
            f"The reward {comparing[0]!r} compares the sampled episodes of a problem, so it "
            f"cannot score the greedy episode that {use} needs. Choose another algorithm, such as "
            "rloo, or another reward."
        )
    if rollout.refills and not compares:
        raise ValueError(
            f"rollout.refills is {rollout.refills}, but {use} also learns from problems whose "
            "episodes have equal rewards, so it needs no refills. Remove rollout.refills."
        )
