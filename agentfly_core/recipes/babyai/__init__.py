"""Missions in the rooms of BabyAI."""
