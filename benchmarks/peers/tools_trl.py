"""Rollouts of TRL with an asynchronous tool, for `tools_vs_trl.py`; prints their seconds.

The script runs in a separate virtual environment, without this project.
"""

import argparse
import asyncio
import json
import time
from typing import Any

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template


async def waiting(seconds: float) -> str:
    """Answer after a while.

    Args:
        seconds: how long that is
    """
    await asyncio.sleep(seconds)
    return "done"


def nothing(completions: list[Any], **_: Any) -> list[float]:
    """Give every completion the same reward."""
    return [0.0] * len(completions)


class Scripted(GRPOTrainer):
    """A trainer with scripted replies for each turn. `taken` has the seconds of its rollouts."""

    def __init__(self, replies: list[list[int]], **settings: Any) -> None:
        super().__init__(**settings)
        self.replies, self.turn = replies, 0
        self.taken: list[float] = []

    def _generate_single_turn(
        self, prompt_ids: list[Any], *_: Any, **__: Any
    ) -> tuple[list[list[int]], None]:
        reply, self.turn = self.replies[self.turn], self.turn + 1
        return [list(reply) for _ in prompt_ids], None

    def _generate(self, prompts: list[Any]) -> Any:
        self.turn, start = 0, time.perf_counter()
        made = super()._generate(prompts)
        self.taken.append(time.perf_counter() - start)
        assert self.turn == len(self.replies), "an episode ended before its last word"
        return made


def main() -> None:
    """Read the settings, run the training steps, and print the seconds of the rollouts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", help="JSON: model, scratch, question, replies, episodes, steps")
    given = json.loads(parser.parse_args().settings)
    tokenizer = AutoTokenizer.from_pretrained(given["model"], trust_remote_code=False)
    tokenizer.chat_template = qwen2_5_chat_template  # TRL can parse tool calls in this ChatML
    settings = GRPOConfig(
        output_dir=given["scratch"],
        use_cpu=True,
        bf16=False,
        num_generations=given["episodes"],
        per_device_train_batch_size=given["episodes"],
        max_completion_length=2048,
        max_steps=given["steps"],
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    question = [{"role": "user", "content": given["question"]}]
    trainer = Scripted(
        [
            [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
            for text in given["replies"]
        ],
        model=AutoModelForCausalLM.from_pretrained(given["model"], trust_remote_code=False),
        reward_funcs=nothing,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": [question] * given["steps"]}),
        processing_class=tokenizer,
        tools=[waiting],
    )
    trainer.train()
    print(json.dumps({"seconds": trainer.taken}), flush=True)


if __name__ == "__main__":
    main()
