"""The core of the daemon: what is known of jobs, what is decided, and what is done about it."""
