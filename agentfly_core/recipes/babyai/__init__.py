"""Missions in BabyAI rooms: go to an object, pick up an object, or put two objects side by side."""
