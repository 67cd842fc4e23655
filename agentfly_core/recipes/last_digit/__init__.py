"""Questions about the last digit of a calculation. The model reasons before it answers."""
