"""Looking at what is stored: episodes of steps, evaluations, demonstrations and plays."""
