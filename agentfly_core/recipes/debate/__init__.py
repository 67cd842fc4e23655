"""A debate about sums with a reward for each debater."""
