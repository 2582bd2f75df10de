"""The numbers of the engine and the simulator, in CPU time and ratios. `python -m bench` prints them."""
