"""Short names of chat templates, and variables of a model's own template."""

import pytest
from transformers import AutoTokenizer

from agentfly_core.config.import_path import load, with_defaults
from agentfly_core.config.parts import TEMPLATES, TemplatePart
from agentfly_core.experiment.checks import template_report
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import inherited_template
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.inference.templates.default import default_template
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.store.store import Store
from agentfly_core.testing import check_template
from tests.support.chat_templates import tokenizer_of
from tests.support.experiments import experiment
from tests.support.tokenizers import like_qwen


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_short_name_is_stored_as_an_import_path(name):
    assert TemplatePart(use=name) == TemplatePart(use=TEMPLATES[name])


def test_further_settings_are_variables_of_the_models_template():
    part = TemplatePart.model_validate({"use": "model", "date": "2026-01-31", "thinking": False})
    assert part.settings == {"date": "2026-01-31", "variables": {"thinking": False}}
    assert TemplatePart.model_validate(part.model_dump()) == part


def test_an_experiment_switches_thinking_off():
    part = TemplatePart.model_validate({"use": "model", "enable_thinking": False})
    template = part.make(tokenizer=tokenizer_of("qwen3"))
    assert isinstance(template, ModelTemplate)
    assert "enable_thinking = false" in template.jinja


def test_users_check_a_tokenizer():
    assert check_template(tokenizer_of("qwen2_5"))["a call"] == "continues"


def test_the_report_of_a_model_names_its_tools_and_its_history(tmp_path):
    tokenizer_of("qwen3").save_pretrained(tmp_path)
    template = {"use": "model", "history": "kept"}
    settings = experiment(tmp_path, model=str(tmp_path), template=template).settings
    lines = template_report(settings.model, settings.template)
    assert lines[:2] == ["tools: hermes", "reasoning: reasoning_content"]
    assert lines[2].startswith("echoes without reasoning: keep it, though other servers")
    assert lines[3].startswith("history: kept")
    assert lines[4:] and all(line.endswith(": continues") for line in lines[4:])


@pytest.mark.parametrize(
    "family",
    ["qwen3", *(pytest.param(one, marks=pytest.mark.long) for one in ("qwen2_5", "llama3_1"))],
)
def test_hermes_is_reported_where_the_model_has_another_format(family, tmp_path):
    tokenizer_of(family).save_pretrained(tmp_path)
    settings = experiment(tmp_path, model=str(tmp_path), template={"use": "hermes"}).settings
    (line,) = template_report(settings.model, settings.template)
    assert "set template=model" in line


@pytest.mark.parametrize(
    ("settings", "use"),
    [
        ({}, "default"),
        ({"show_tools": False}, "hermes"),
        ({"date": "2026-01-31"}, "model"),
        ({"use": "default", "enable_thinking": False}, "model"),
    ],
)
def test_settings_choose_the_template_that_takes_them(settings, use):
    assert TemplatePart.model_validate(settings).use == TEMPLATES[use]


@pytest.mark.parametrize("name", TEMPLATES)
def test_settings_with_their_defaults_choose_the_same_template(name):
    """Such settings are stored with a run and read again."""
    part = TemplatePart(use=name)
    completed = with_defaults(load(part.use), part.settings, ["tokenizer"])
    full = {"use": part.use, **completed}
    assert TemplatePart.model_validate(full).use == TEMPLATES[name]


def test_a_model_with_a_chat_template_is_played_in_it_by_default():
    assert isinstance(default_template(tokenizer_of("qwen3")), ModelTemplate)


def test_a_model_without_a_chat_template_defaults_to_hermes():
    assert isinstance(default_template(like_qwen()), Hermes)


@pytest.mark.parametrize("show_tools", [True, False])
def test_nano_models_and_hermes_exports_default_to_hermes(nano, show_tools):
    tokenizer = AutoTokenizer.from_pretrained(nano)
    assert isinstance(default_template(tokenizer), Hermes)
    exported = Hermes(tokenizer, show_tools)
    tokenizer.chat_template = exported.jinja
    again = default_template(tokenizer)
    assert isinstance(again, Hermes) and again.jinja == exported.jinja


@pytest.mark.parametrize("model", ["run:first", "run:first@2"])
def test_a_run_of_another_run_is_played_in_that_runs_template(tmp_path, model):
    store, first = Store.at(str(tmp_path), tmp_path), {"template": {"use": "hermes"}}
    store.write_json(RunLayout("first").record, {"settings": first})
    unnamed, named = TemplatePart(use="default"), TemplatePart(use="model")
    assert inherited_template(store, model, unnamed) == TemplatePart(use="hermes")
    assert inherited_template(store, model, named) == named
    assert inherited_template(store, "run:second", unnamed) == unnamed


def test_hermes_is_not_reported_for_nano(nano):
    assert template_report(str(nano), TemplatePart(use="hermes")) == []
