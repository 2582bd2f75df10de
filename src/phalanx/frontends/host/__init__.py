"""The one-machine front end: a daemon that runs gangs of real processes."""
