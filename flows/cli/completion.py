"""Completion of experiments, runs and settings in bash, zsh and fish."""

import re
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.completion import CompletionContext
from cyclopts.completion.install import create_install_completion_command

WITHOUT_SPACE = {
    "complete -F _agentfly agentfly\n": """_agentfly_settings() {
  _agentfly
  [[ "${COMPREPLY[*]}" == *= ]] && compopt -o nospace
}
complete -F _agentfly_settings agentfly
""",
    "(( ${#_cyc_vals} )) && compadd": """local -a _cyc_end=()
    [[ "${_cyc_vals[1]}" == *= ]] && _cyc_end=(-S '')
    (( ${#_cyc_vals} )) && compadd "${_cyc_end[@]}\"""",
}
"""Maps texts in the completion scripts for bash and zsh to their replacements.

With the replacements, the shell adds no space after the = of a setting.
"""


def complete_files(_: CompletionContext, folder: str = "conf") -> list[str]:
    """Return the names of the YAML files in `folder`.

    These are the experiments in ./conf, or the sites in ./conf/site.
    """
    return sorted(path.stem for path in Path(folder).glob("[!.]*.yaml"))


def complete_runs(context: CompletionContext) -> list[str]:
    """Return the names of the runs in the command's store."""
    from agentfly_core.config.reference import NAME
    from flows.store import store_at

    names = store_at(_given(context, "--store")).names("runs")
    return [name for name in names if re.fullmatch(NAME, name)]  # the shell prints them


def complete_settings(context: CompletionContext) -> list[str]:
    """Return the names of settings, each followed by an equals sign: `update.learning_rate=`.

    These are all settings of the command's experiment. If the experiment cannot be read, these are
    the settings that all experiments have.
    """
    from agentfly_core.config import loading
    from agentfly_core.system.formats.json_value import flat

    try:
        values = loading.read(_given(context, "EXPERIMENT")).settings
    except ValueError:
        return [f"{key}=" for key in loading.settings()]
    return [f"{key}=" for key in flat(values.model_dump(mode="json"))]


def _given(context: CompletionContext, name: str) -> str:
    value = context.get(name)
    return (value.raw or "") if value else ""


def add_installation(app: App) -> None:
    """Add the option `--install-completion`, which installs the completion script of a shell."""

    def install(**options: Any) -> Path:
        path = app.install_completion(**options)
        path.write_text(without_space(path.read_text()))
        return path

    command = create_install_completion_command(install, True)
    app.command(
        command, name="--install-completion", help="Install completion for bash, zsh or fish."
    )


def without_space(script: str) -> str:
    """Change a completion script: the shell then adds no space after the = of a setting."""
    for ending, better in WITHOUT_SPACE.items():
        script = script.replace(ending, better)
    return script
