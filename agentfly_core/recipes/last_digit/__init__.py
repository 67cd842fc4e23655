"""The last digit of a calculation in steps, which needs reasoning."""
