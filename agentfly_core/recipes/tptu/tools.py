"""Distractor tools that no question of this recipe needs. An agent must not choose them."""

from agentfly_core import tool


@tool
async def weather(city: str) -> str:
    """See the weather forecast of a city."""
    return f"Sunny in {city}."


@tool
async def translate(text: str) -> str:
    """Translate a text into French."""
    return f"« {text} »"


@tool
async def email(message: str) -> str:
    """Send an email to a colleague."""
    return "Sent."


@tool
async def calendar(date: str) -> str:
    """List the meetings of a date."""
    return f"No meetings on {date}."


@tool
async def route(places: str) -> str:
    """Find the way between two places."""
    return "Straight on."


@tool
async def pictures(subject: str) -> str:
    """Search pictures of a subject."""
    return "No pictures."


@tool
async def news(topic: str) -> str:
    """Read the headlines on a topic."""
    return "No headlines."


@tool
async def music(title: str) -> str:
    """Play a piece of music."""
    return f"Playing {title}."
