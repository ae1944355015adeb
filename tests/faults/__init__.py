"""The fault run: a real Ringside is killed, starved and stopped at random, and must lose no more than a second."""
