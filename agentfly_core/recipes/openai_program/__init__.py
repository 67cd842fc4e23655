"""Training of an unmodified program that uses only OpenAI's client."""
