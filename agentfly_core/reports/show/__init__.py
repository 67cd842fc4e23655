"""Looking at what is stored: episodes of steps, evaluations, demonstrations and plays, and what
other rewards make of them.
"""
