"""The commands of `agentfly`.

The module of a command is imported only when that command runs, so that a short command does not
wait for the packages of a long one.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """`CommandEntry("training", "start a run, or continue it")`: the module of `flows.cli` that
    adds the command, and its line of help.
    """

    module: str
    does: str


COMMANDS = {
    "train": CommandEntry("training", "start a run, or continue it"),
    "evaluate": CommandEntry("stages", "held-out success of any policy, with an interval"),
    "prepare": CommandEntry(
        "stages", "build, check and version the dataset, and show some of its problems"
    ),
    "warm-start": CommandEntry("stages", "make the policy that training starts from"),
    "config": CommandEntry(
        "stages", "check an experiment; the resolved settings, each with where it came from"
    ),
    "resolve": CommandEntry("stages", "write the complete settings into results/ for DVC"),
    "play": CommandEntry("play", "play problems with any policy and store that"),
    "list": CommandEntry(
        "runs", "all runs: state, owner, last step, and the command that continues each"
    ),
    "tag": CommandEntry("tagging", "put words on a run, to find it again"),
    "show": CommandEntry("episodes", "read episodes in the terminal, sampled tokens marked"),
    "score": CommandEntry(
        "episodes", "score a run's stored episodes with other rewards; nothing is played again"
    ),
    "export": CommandEntry(
        "export",
        "write a policy for transformers and vLLM: a folder with its weights, tokenizer, chat "
        "template, and a page that says how it is loaded",
    ),
    "push": CommandEntry(
        "sharing", "share a run's last policy, that results/EXPERIMENT/policy.json names"
    ),
    "pull": CommandEntry("sharing", "fetch a run's last policy that another clone has pushed"),
    "verify": CommandEntry(
        "sharing",
        "train a finished run again, with its settings and its commit of AgentFly, and compare "
        "the artifacts to the byte",
    ),
    "compare": CommandEntry(
        "comparing", "how much more of the same held-out problems runs solve, how surely"
    ),
    "sweep": CommandEntry(
        "comparing", "train with each combination of listed values and each seed, and compare"
    ),
    "fork": CommandEntry(
        "training", "continue from a step of a run with other settings, as another run"
    ),
    "nights": CommandEntry("nights", "what became of each night of an experiment"),
    "report": CommandEntry("nights", "write the report of a night, and show it"),
    "promote": CommandEntry(
        "nights", "make a run's policy the champion: the next night starts from it"
    ),
    "demote": CommandEntry("nights", "take the champion back: the one before takes its place"),
    "doctor": CommandEntry(
        "machine", "what this machine can run, and what to do about what it can't"
    ),
    "repro": CommandEntry("machine", "reproduce an experiment with DVC"),
    "open": CommandEntry(
        "opening",
        "open a run in the MLflow or the Prefect UI; serves it until Ctrl-C where no server runs",
    ),
    "up": CommandEntry(
        "up", "serve Prefect and MLflow to this machine, deploy, and run what is triggered"
    ),
    "down": CommandEntry(
        "up", "end what `agentfly up` started, once it has written what it writes"
    ),
    "init": CommandEntry(
        "project", "write a small project: an experiment with its tool, reward and tests"
    ),
    "requirements": CommandEntry("project", "print the list of packages that were tested together"),
    "prefect": CommandEntry(
        "machine",
        "any Prefect command on this project's state, for example: agentfly prefect server start",
    ),
}
"""All commands, in the order of `agentfly --help`."""
