"""Values only: what the cluster is, what is asked of it, and what was decided.

Nothing here reads a clock, a file or a random number, and nothing here decides.
Everyone else imports this package; it imports nothing of ours.
"""
