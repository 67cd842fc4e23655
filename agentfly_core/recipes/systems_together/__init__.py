"""Published systems in one experiment: masked data, a gate, forks, plans and competitions."""
