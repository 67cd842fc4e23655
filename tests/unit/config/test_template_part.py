"""Short names of chat templates, and variables of a model's own template."""

import pytest

from agentfly_core.config.parts import TEMPLATES, TemplatePart
from agentfly_core.experiment.checks import template_report
from agentfly_core.experiment.task import template_of
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.testing import check_template
from tests.support.chat_templates import tokenizer_of
from tests.support.experiments import experiment


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_short_name_is_stored_as_an_import_path(name):
    assert TemplatePart(use=name) == TemplatePart(use=TEMPLATES[name])


def test_further_settings_are_variables_of_the_models_template():
    part = TemplatePart.model_validate({"use": "model", "date": "2026-01-31", "thinking": False})
    assert part.settings == {"date": "2026-01-31", "variables": {"thinking": False}}
    assert TemplatePart.model_validate(part.model_dump()) == part


def test_an_experiment_switches_thinking_off():
    part = TemplatePart.model_validate({"use": "model", "enable_thinking": False})
    template = template_of(part, tokenizer_of("qwen3"))
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
    assert lines[2].startswith("history: kept")
    assert lines[3:] and all(line.endswith(": continues") for line in lines[3:])


@pytest.mark.parametrize("family", ["qwen2_5", "qwen3", "llama3_1"])
def test_hermes_is_reported_where_the_model_has_another_format(family, tmp_path):
    tokenizer_of(family).save_pretrained(tmp_path)
    settings = experiment(tmp_path, model=str(tmp_path)).settings
    (line,) = template_report(settings.model, settings.template)
    assert "set template=model" in line


def test_hermes_is_not_reported_for_nano(nano):
    assert template_report(str(nano), TemplatePart(use="hermes")) == []
