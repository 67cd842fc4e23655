"""Chat services in OpenAI's format: asked within a budget, and each answer stored."""
