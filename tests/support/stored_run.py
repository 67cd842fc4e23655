"""A run of which two steps are stored: four episodes of one problem, and one of another step."""

from pathlib import Path

from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from agentfly_core.records.parquet import write_scores, write_trajectories
from agentfly_core.records.trajectory import (
    Ending,
    Finish,
    Given,
    Message,
    Observation,
    Problem,
    Sampled,
    Scored,
    Trajectory,
    Turn,
    Unscored,
)
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.testing.trajectories import trajectory

PROMPT = "<|im_start|>user\nWhat is 41+58?<|im_end|>\n<|im_start|>assistant\n"
CALL = (
    '<tool_call>{"name": "calculator", "arguments": {"expression": "41+58"}}</tool_call><|im_end|>'
)
ANSWER = "\n<|im_start|>tool\n99<|im_end|>\n<|im_start|>assistant\n"


def make_tokenizer() -> Tokenizer:
    """Bytes as tokens, and the two that mark messages."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>"]
    tokenizer.train_from_iterator(
        [], BpeTrainer(initial_alphabet=ByteLevel.alphabet(), special_tokens=special)
    )
    return tokenizer


TOKENIZER = make_tokenizer()


def turn(given: str, sampled: str, finish: Finish = "stop") -> Turn:
    tokens = tuple(TOKENIZER.encode(sampled).ids)
    span = Sampled(tokens, (-0.5,) * len(tokens), policy_version=6, finish=finish)
    return Turn(
        (), Given(tuple(TOKENIZER.encode(given).ids)), Message("assistant", sampled), (span,)
    )


def episode(
    chain: int, *turns: Turn, closing: tuple[Observation, ...] = (), error: str | None = None
) -> Trajectory:
    problem = Problem("add-41-58", "What is 41+58?", {"answer": "99"})
    ending = Ending.TERMINAL if closing else Ending.FAILED if error else Ending.NO_TOOL_CALLS
    return trajectory(
        *turns,
        name=f"chain-{chain}",
        chain=chain,
        problem=problem,
        ending=ending,
        closing=closing,
        error=error,
    )


GOOD = episode(0, turn(PROMPT, CALL), turn(ANSWER, "The sum is 99.<|im_end|>"))
WRONG = episode(1, turn(PROMPT, "It is 9", finish="length"))
ENDED = episode(2, turn(PROMPT, CALL), closing=(Observation("answer", "98"),))
FAILED = episode(3, turn(PROMPT, CALL), error="shop: ServiceFailure: it died")
SCORES = [
    Scored("chain-0", {"exact": 1.0}, (), 1.0),
    Scored("chain-1", {"exact": 0.0}, (), 0.0),
    Scored("chain-2", {"exact": 0.5}, (), 0.5),
    Scored("chain-3", {}, (), Unscored("the episode failed")),
]


def stored_run(tmp_path: Path) -> Store:
    """A run with a scored step 6 and a step 7 that is only partly played."""
    store = Store.at(str(tmp_path), tmp_path / ".agentfly")
    with store.publish(
        ArtifactKey("artifacts/warm_start/ab/001/policy", "warm_start", "key", {})
    ) as folder:
        (folder / "tokenizer.json").write_text(TOKENIZER.to_str())
    start = store.artifact("artifacts/warm_start/ab/001/policy")
    store.write_json("runs/demo/start.json", {"uri": start.uri, "digest": start.digest})
    for step, shard, played in ((6, 0, [GOOD, WRONG]), (6, 1, [ENDED, FAILED]), (7, 0, [WRONG])):
        with store.publish(
            ArtifactKey(f"runs/demo/steps/{step:06d}/rollout-{shard:03d}", "rollout", "key", {})
        ) as folder:
            write_trajectories(folder / "trajectories.parquet", played)
    with store.publish(ArtifactKey("runs/demo/steps/000006/scored", "score", "key", {})) as folder:
        write_scores(folder / "scores.parquet", SCORES)
    return store
