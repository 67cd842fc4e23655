"""A vLLM worker extension. It loads the weights of a policy in place, even with tied embeddings."""

from typing import Any

from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.platforms import current_platform


class Swap:
    """Methods that vLLM adds to its worker class, to load the weights of another policy."""

    model_runner: Any
    reload_weights: Any

    def swap(self, path: str) -> None:
        """Load the weights of a policy directory in place.

        On CPU, vLLM uses a copy of the output projection in another memory layout. If the
        projection is tied to the embedding, vLLM 0.32 does not update this copy. This method
        updates the copy.
        """
        self.reload_weights(weights_path=path)
        if current_platform.is_cpu():
            for layer in self.model_runner.get_model().modules():
                if isinstance(layer, ParallelLMHead):
                    layer.quant_method.process_weights_after_loading(layer)
