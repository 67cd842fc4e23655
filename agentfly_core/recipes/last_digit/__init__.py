"""The last digit of a calculation with several steps, for a model that reasons first."""
