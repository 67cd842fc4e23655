"""A server with OpenAI's API, to which programs that play episodes send their requests."""
