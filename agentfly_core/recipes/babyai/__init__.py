"""Missions in BabyAI rooms: go to an object, pick it up, or put it next to another."""
