"""Verbs that talk to the daemon of one machine: thin, light to import, with a next command in every error."""
