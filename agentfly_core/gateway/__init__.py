"""A server of the OpenAI API for programs that play episodes."""
