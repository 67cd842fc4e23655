"""The commands of `agentfly`.

The module of a command is imported only when that command runs, so that a short command does not
wait for the packages of a long one.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """`Entry("training", "start a run, or continue it")`: the module of `flows.cli` that adds
    the command, and its line of help.
    """

    module: str
    does: str


COMMANDS = {
    "train": Entry("training", "start a run, or continue it"),
    "evaluate": Entry("stages", "held-out success of any policy, with an interval"),
    "prepare": Entry(
        "stages", "build, check and version the dataset, and show some of its problems"
    ),
    "warm-start": Entry("stages", "make the policy that training starts from"),
    "config": Entry(
        "stages", "check an experiment; the resolved settings, each with where it came from"
    ),
    "resolve": Entry("stages", "write the complete settings into results/ for DVC"),
    "play": Entry("play", "play problems with any policy and store that"),
    "list": Entry("runs", "all runs: state, owner, last step, and the command that continues each"),
    "tag": Entry("tagging", "put words on a run, to find it again"),
    "show": Entry("episodes", "read episodes in the terminal, sampled tokens marked"),
    "score": Entry(
        "episodes", "score a run's stored episodes with other rewards; nothing is played again"
    ),
    "export": Entry(
        "export",
        "write a policy for transformers and vLLM: a folder with its weights, tokenizer, chat "
        "template, and a page that says how it is loaded",
    ),
    "push": Entry(
        "sharing", "share a run's last policy, that results/EXPERIMENT/policy.json names"
    ),
    "pull": Entry("sharing", "fetch a run's last policy that another clone has pushed"),
    "verify": Entry(
        "sharing",
        "build a finished run again from its recorded settings, at AgentFly's recorded commit if "
        "git has it and with code of your own as it was stored, and say what agrees to the byte",
    ),
    "compare": Entry(
        "comparing", "how much more of the same held-out problems runs solve, how surely"
    ),
    "sweep": Entry(
        "comparing", "train with each combination of listed values and each seed, and compare"
    ),
    "fork": Entry("training", "continue from a step of a run with other settings, as another run"),
    "nights": Entry("nights", "what became of each night of an experiment"),
    "report": Entry("nights", "write the report of a night, and show it"),
    "promote": Entry("nights", "make a run's policy the champion: the next night starts from it"),
    "demote": Entry("nights", "take the champion back: the one before takes its place"),
    "doctor": Entry("machine", "what this machine can run, and what to do about what it can't"),
    "repro": Entry("machine", "reproduce an experiment with DVC"),
    "open": Entry(
        "opening",
        "open a run in the MLflow or the Prefect UI; serves it until Ctrl-C where no server runs",
    ),
    "up": Entry(
        "up", "serve Prefect and MLflow to this machine, deploy, and run what is triggered"
    ),
    "down": Entry("up", "end what `agentfly up` started, once it has written what it writes"),
    "init": Entry(
        "project", "write a small project: an experiment with its tool, reward and tests"
    ),
    "requirements": Entry("project", "print the list of packages that were tested together"),
    "prefect": Entry(
        "machine",
        "any Prefect command on this project's state, for example: agentfly prefect server start",
    ),
}
"""All commands, in the order of `agentfly --help`."""
