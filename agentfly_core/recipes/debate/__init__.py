"""A debate about sums, whose debaters have rewards of their own."""
