"""Published systems together: masked data, a gate, forks, a program, plans and competitions."""
