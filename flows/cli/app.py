"""The commands of `agentfly`.

A command's module is imported only when the command runs, because short commands must start fast.
"""

from collections.abc import Sequence

from cyclopts import App, Group, Parameter

from flows.cli.arguments import ARGUMENTS
from flows.cli.completion import add_installation

# `agentfly prefect --help` is the help of Prefect
WITHOUT_OPTIONS = {"help_flags": (), "end_of_options_delimiter": ""}
COMMANDS = """
Train and evaluate
  train         training:train         Start a run, or continue it.
  evaluate      stages:evaluate        Measure held-out success of a policy, with an interval.
  play          play:play              Play problems with any policy, and store the episodes.
  prepare       stages:prepare         Build, check and version the dataset; show some problems.
  warm-start    stages:warm_start      Make the policy that training starts from.
  admit         machine:admit          Try whether this machine can train a model.
  config        stages:config          Check an experiment; show its settings with their origins.
  resolve       stages:resolve         Write the complete settings into results/ for DVC.
Runs
  list          runs:list_runs         List runs with the command that continues each.
  show          episodes:show          Show episodes, sampled tokens marked, or a run's steps.
  score         episodes:score         Score stored episodes with other rewards.
  import        episodes:import_traces  Store chats and traces of a file as episodes.
  compare       comparing:compare      Compare runs on the same held-out problems.
  sweep         comparing:sweep        Train with each combination of values and seeds; compare.
  fork          training:fork          Continue from a step of a run with other settings.
  tag           training:tag           Put words on a run, to find it again.
  open          training:open_ui       Open a run in the MLflow or Prefect UI.
  export        sharing:export         Write a policy for transformers and vLLM, or episodes.
  serve         play:serve             Serve the policy of a run by OpenAI's API.
  push          sharing:push           Share a run's last policy.
  pull          sharing:pull           Fetch a run's last policy that another clone has pushed.
  verify        sharing:verify         Train a finished run again, and compare every byte.
Nights
  nights        nights:nights          Show the outcome of each night of an experiment.
  report        nights:report          Write the report of a night, and show it.
  promote       nights:promote         Make a run's policy the champion of its experiment.
  demote        nights:demote          Withdraw the champion; the previous champion takes its place.
Project and machine
  init          machine:init           Write a small project with a tool, a reward and tests.
  doctor        machine:doctor         Check this machine; show remedies for missing parts.
  up            machine:up             Serve Prefect and MLflow, and run triggered flows.
  down          machine:down           Stop all processes that `agentfly up` started.
  prefect       machine:prefect        Run any Prefect command on this project's state.
  repro         machine:repro          Reproduce an experiment with DVC.
  requirements  machine:requirements   Print the packages that were tested together.
"""
"""Groups of commands. Columns: command, function in `flows.cli`, first line of its docstring."""


def agentfly(words: Sequence[str]) -> App:
    """Return the command line app. Only the command in `words` gets its whole docstring as help."""
    app = App(
        name="agentfly",
        help="Train language-model agents with reinforcement learning; a run can be killed and "
        "continued.",
        help_format="markdown",
        version_flags=(),
        group_commands=Group("Options", sort_key=99),
        group_arguments=ARGUMENTS,
        group_parameters=Group("Options", sort_key=0),
        default_parameter=Parameter(negative=(), show_default=lambda value: value or None),
    )
    group = Group("Commands")
    for order, line in enumerate(COMMANDS.strip().splitlines()):
        if not line.startswith(" "):
            group = Group(line, sort_key=order)
            continue
        name, function, summary = line.split(maxsplit=2)
        app.command(
            f"flows.cli.{function}",
            name=name,
            help=None if name in words[:1] else summary,
            group=group,
            sort_key=order,
            **(WITHOUT_OPTIONS if name == "prefect" else {}),
        )
    add_installation(app)
    return app
