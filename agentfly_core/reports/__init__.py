"""Reports for people: episodes, comparisons of runs, nights."""
