"""What a small run's CPU seconds are spent on: its processes, the modules that they load, and the rest."""
