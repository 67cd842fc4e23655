"""The sites of docs/how-to/gpus-and-nodes.md are valid."""

import re

import pytest

from agentfly_core.config import loading
from agentfly_core.training.multinode import HANDED_ON
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/gpus-and-nodes.md").read_text()
ONE_GPU, OWN_GPUS, NODES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
[HOSTFILE] = re.findall(r"```hostfile\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The site of a text, in a folder with the hostfile of the page."""

    def read(text):
        (tmp_path / "conf/site/mine.yaml").write_text(text)
        return loading.site("mine")

    (tmp_path / "conf/site").mkdir(parents=True)
    (tmp_path / "trainers").write_text(HOSTFILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "vllm")
    return read


def test_on_one_gpu_they_take_turns_and_on_their_own_they_do_not(site):
    assert site(ONE_GPU).shares_gpus
    assert not site(OWN_GPUS).shares_gpus
    assert site(OWN_GPUS).ranks == 3


def test_the_ranks_of_several_nodes_are_the_sum_of_their_slots(site, tmp_path):
    nodes = site(NODES)
    assert (nodes.ranks, nodes.shares_gpus) == (16, True)
    (tmp_path / "trainers").write_text(HOSTFILE.replace("trainer-1 slots=8", "trainer-1 slots=7"))
    nodes = site(
        f"{NODES}learner_gpus: {re.search(r'learner_gpus: (.1, 2, 3, 4, .*?])', PAGE)[1]}\n"
    )
    assert (nodes.ranks, nodes.shares_gpus) == (15, False)


def test_the_page_names_the_environment_of_other_nodes():
    documented = {name.rstrip("*") for name in re.findall(r"`([A-Z_]+\*?)`", PAGE)}
    assert {*HANDED_ON} <= documented
