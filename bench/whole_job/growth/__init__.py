"""How the cost of a run of tallystick grows: with the records, partitions and tasks, and with a skewed topic."""
