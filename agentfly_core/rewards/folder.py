"""Are the files that an episode left in its workspace the right ones?"""

from __future__ import annotations

from agentfly_core.authoring.reward import reward
from agentfly_core.environments.workspace import Workspace
from agentfly_core.records.trajectory import Problem, Score


@reward
async def expected_files(workspace: Workspace, problem: Problem) -> Score:
    """1 when the workspace's files are those of `problem.facts["expected"]`, no more and no less,
    else 0; line breaks at the end of a file do not count.

    Its part `wrong` is how many files are not as expected, missing ones and further ones included.
    What is compared is text that was copied out of the sandbox; links, pipes and programs that
    still ran were left there.
    """
    expected: dict[str, str] = {n: t.rstrip("\n") for n, t in problem.facts["expected"].items()}
    left = {name: text.rstrip("\n") for name, text in workspace.files.items()}
    wrong = sum(expected.get(name) != left.get(name) for name in {*expected, *left})
    return Score(float(wrong == 0), parts={"wrong": float(wrong)})
