"""ARPO: fork episodes where the model's entropy is high. The model must open vaults."""
