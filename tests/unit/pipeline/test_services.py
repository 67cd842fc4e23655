"""The services of a run share a machine."""

from dataclasses import replace

import pytest

from agentfly_core.config.site import Site
from agentfly_core.inference import in_process as sampling
from agentfly_core.pipeline.workers.samplers import Samplers
from tests.support.experiments import experiment


@pytest.mark.parametrize(
    ("staleness", "threads", "each"),
    [(0, 8, 8), (1, 8, 4), (1, 1, 1)],
    ids=["in turn, all of them", "at the same time, half of them", "there is no half of one"],
)
def test_simultaneous_services_divide_the_threads(tmp_path, staleness, threads, each):
    here = experiment(tmp_path, rollout={"max_staleness": staleness})
    assert replace(here, site=Site(threads=threads)).divided_site.threads == each


def test_the_sampler_in_this_process_has_the_threads_of_the_site(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(sampling, "TransformersSampler", lambda *settings: given.append(settings))
    here = replace(experiment(tmp_path), site=Site(threads=3))
    Samplers(here, "").here(tokenizer=None)
    assert given == [("cpu", "float32", 3)]
