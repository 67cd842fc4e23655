"""Tools of a machine-learning competition: read about it, run code, or fit a simple pipeline."""

from typing import Literal

from agentfly_core import StepResult, tool
from agentfly_core.recipes.mle.competitions import SAMPLE
from agentfly_core.recipes.mle.environment import LIMITS, MLE, SUBMISSION
from agentfly_core.recipes.mle.pipelines import ModelName, ScalerName, program

SHOWN = 4000
HEAD = 3
"""The number of rows of a file that `request_info` shows."""
Topic = Literal[
    "overview",
    "sample_submission",
    "data_structure",
    "data_path",
    "output_path",
    "name",
    "metadata",
    "all",
]


@tool(max_chars=SHOWN)
async def request_info(topic: Topic, *, mle: MLE) -> str:
    """Read about the competition.

    Args:
        topic: overview, sample_submission, data_structure, data_path, output_path, name, metadata
            or all
    """
    task = mle.task
    metric = f"metric {task.metric.name}, {task.metric.direction} is better"
    heads = {name: _head(content) for name, content in task.files.items()}
    texts = {
        "overview": task.description,
        "sample_submission": heads[SAMPLE],
        "data_structure": "\n".join(f"{name}:\n{head}" for name, head in heads.items()),
        "data_path": "The files are in the working directory.",
        "output_path": f"Write {SUBMISSION} in the working directory.",
        "name": task.name,
        "metadata": f"{metric}; {LIMITS.cpu} s of computing",
    }
    return "\n\n".join(texts.values()) if topic == "all" else texts[topic]


@tool(max_chars=SHOWN, timeout=180.0)
async def validate_code(code: str, *, mle: MLE) -> str:
    """Run a program and check the form of its submission, without a score.

    Args:
        code: a Python program that reads the files and writes submission.csv
    """
    printed, submission = await mle.run(code)
    mle.task.scores(submission)
    return f"{printed}\nThe submission is valid.".strip()


@tool(max_chars=SHOWN, timeout=180.0)
async def execute_code(code: str, *, mle: MLE) -> StepResult:
    """Run a program and submit its submission.csv.

    Args:
        code: a Python program that reads the files and writes submission.csv
    """
    return await _submitted(code, mle)


@tool(timeout=180.0, ends_episode=True)
async def fit_pipeline(
    scaler: ScalerName, model: ModelName, strength: int, degree: int, *, mle: MLE
) -> StepResult:
    """Fit a pipeline of scikit-learn and submit its predictions; nothing can be done afterwards.

    Args:
        scaler: none or standard
        model: linear, neighbours, vectors or trees
        strength: 1 (simple) to 4 (flexible)
        degree: 1, or 2 for products of columns or pairs of words
    """
    return await _submitted(program(scaler, model, strength, degree), mle)


async def _submitted(code: str, mle: MLE) -> StepResult:
    printed, submission = await mle.run(code)
    public, increase = mle.submit(submission)
    score = f"Public score {public:.4f}, best so far {mle.public:.4f} ({mle.task.metric.name})."
    return StepResult(f"{printed}\n{score}".strip(), increase)


def _head(content: bytes) -> str:
    lines = content[:2000].decode(errors="replace").splitlines()[: HEAD + 1]
    return "\n".join([*lines, f"({len(content)} bytes)"])
