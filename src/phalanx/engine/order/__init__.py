"""Whose turn it is: orders, the turns of one cycle, and how queues stand to each other."""
