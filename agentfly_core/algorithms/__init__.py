"""Ready-made algorithms, one a module; in an experiment file `algorithm: grpo` is short for the class in `grpo`."""
