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
    agentfly train quickstart seed=1 --run mine
  evaluate      stages:evaluate        Measure how many held-out problems a policy solves.
    agentfly evaluate quickstart --policy run:mine@3
  play          play:play              Play problems with any policy, and store the episodes.
    agentfly play quickstart --policy oracle -n 8
  prepare       stages:prepare         Build, check and version the dataset; show some problems.
    agentfly prepare quickstart --sample 3
  warm-start    stages:warm_start      Make the policy that training starts from.
    agentfly warm-start quickstart
  admit         machine:admit          Try whether this machine can train a model.
    agentfly admit Qwen/Qwen3-0.6B
  config        stages:config          Check an experiment; show its settings with their origins.
    agentfly config quickstart update.learning_rate=3e-4 --changed
  resolve       stages:resolve         Write the complete settings into results/ for DVC.
    agentfly resolve quickstart --params params.yaml

Runs
  list          runs:list_runs         List runs, each with the command that continues it.
    agentfly list --sort success --filter experiment=quickstart
  show          episodes:show          Show episodes, or a table of a run's steps.
    agentfly show quickstart --worst 3
  score         episodes:score         Score stored episodes with other rewards.
    agentfly score mine --reward my_rewards:strict
  import        episodes:import_traces  Store the chats or traces in a file as episodes.
    agentfly import traces.jsonl quickstart
  compare       comparing:compare      Compare runs with the first run, on the same problems.
    agentfly compare mine other --png curves.png
  sweep         comparing:sweep        Train with each combination of values and seeds, and compare.
    agentfly sweep quickstart update.learning_rate=1e-4,3e-4 --seeds 3
  fork          training:fork          Continue from a step of a run with other settings.
    agentfly fork mine@7 update.learning_rate=3e-5
  tag           training:tag           Add tags to a run, or remove tags.
    agentfly tag mine baseline
  open          training:open_ui       Open a run in the MLflow or Prefect UI.
    agentfly open mlflow mine
  export        sharing:export         Write a policy for transformers and vLLM, or write episodes.
    agentfly export run:mine ./policy
  serve         play:serve             Serve the policy of a run with OpenAI's API.
    agentfly serve mine
  push          sharing:push           Share a run's last policy.
    agentfly push mine --remote s3://bucket/shared
  pull          sharing:pull           Fetch a run's last policy that another clone has pushed.
    agentfly pull mine
  verify        sharing:verify         Train a finished run again, and compare every byte.
    agentfly verify mine

Nights
  nights        nights:nights          Show how each nightly training run of an experiment ended.
    agentfly nights quickstart
  report        nights:report          Write the report of a nightly training run, and show it.
    agentfly report nightly-2026-11-21
  promote       nights:promote         Make a run's policy the champion of its experiment.
    agentfly promote nightly-2026-11-21@12
  demote        nights:demote          Withdraw the champion; the previous champion takes its place.
    agentfly demote quickstart

Project and machine
  init          machine:init           Write a small project with a tool, a reward and tests.
    agentfly init my_project
  doctor        machine:doctor         Check this machine; show remedies for missing parts.
    agentfly doctor --sandbox
  up            machine:up             Serve Prefect and MLflow, and run triggered flows.
    agentfly up --detach
  down          machine:down           Stop all processes that `agentfly up` started.
    agentfly down
  prefect       machine:prefect        Run any Prefect command with this project's database.
    agentfly prefect server start
  repro         machine:repro          Reproduce an experiment with DVC.
    agentfly repro quickstart
  requirements  machine:requirements   Print the packages that were tested together.
    agentfly requirements cpu
"""
"""The commands, in groups. Each command takes two lines of this text.

The first line has the command's name, the function in `flows.cli`, and the first line of the
function's docstring. The second line is an example.
"""


def agentfly(words: Sequence[str]) -> App:
    """Return the command line app.

    `words` are the words of the command line, such as `["train", "--help"]`. If the first word is
    a command, its help is the whole docstring of its function. Other commands have one line of
    help.
    """
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
    for order, (title, *rows) in enumerate(map(str.splitlines, COMMANDS.strip().split("\n\n"))):
        group = Group(title, sort_key=order)
        for row, example in zip(rows[::2], rows[1::2], strict=True):
            name, function, summary = row.split(maxsplit=2)
            app.command(
                f"flows.cli.{function}",
                name=name,
                help=None if name in words[:1] else summary,
                help_epilogue=f"For example `{example.strip()}`.",
                group=group,
                sort_key=rows.index(row),
                **(WITHOUT_OPTIONS if name == "prefect" else {}),
            )
    add_installation(app)
    return app
