"""A shop in which the model finds and buys one of at least 1,000 products."""
