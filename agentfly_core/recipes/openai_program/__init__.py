"""A program that knows only OpenAI's client, trained as it is."""
