"""GRPO steps of TRL, for `update_vs_trl.py`; prints a line when a phase begins.

The script runs in a separate virtual environment, without this project.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def begin(phase: str) -> None:
    """Print the name of a phase for the parent process."""
    print(json.dumps({"phase": phase}), flush=True)


class Marking(TrainerCallback):
    """Reports the phases of a step. A step begins with generation.

    The time after the optimizer belongs to no phase.
    """

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        begin("generation")

    def on_step_end(self, *_: Any, **__: Any) -> None:
        begin("")


class Marked(GRPOTrainer):
    """A trainer that reports the beginning of the update phase after each generation."""

    def _generate(self, prompts: list[Any]) -> Any:
        made = super()._generate(prompts)
        begin("update")
        return made


def every_other(completions: list[str], **_: Any) -> list[float]:
    """Return 1 for every second completion, else 0. So the rewards in a group always differ."""
    return [float(index % 2) for index in range(len(completions))]


def main() -> None:
    """Read the settings, and run the training steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "settings",
        help="JSON: model, prompt, tokens, group, new_tokens, steps, threads, checkpointing",
    )
    given = json.loads(parser.parse_args().settings)
    torch.set_num_threads(given["threads"])
    tokenizer = AutoTokenizer.from_pretrained(given["model"], trust_remote_code=False)
    assert tokenizer(given["prompt"]).input_ids == given["tokens"], "TRL reads other tokens"
    settings = GRPOConfig(
        output_dir=str(Path(given["scratch"])),
        use_cpu=True,
        bf16=False,
        num_generations=given["group"],
        per_device_train_batch_size=given["group"],
        max_completion_length=given["new_tokens"],
        generation_kwargs={"min_new_tokens": given["new_tokens"]},
        gradient_checkpointing=given["checkpointing"],
        max_steps=given["steps"],
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Marked(
        model=AutoModelForCausalLM.from_pretrained(
            given["model"], dtype=torch.float32, trust_remote_code=False
        ),
        reward_funcs=every_other,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": [given["prompt"]] * given["steps"]}),
        processing_class=tokenizer,
        callbacks=[Marking()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
