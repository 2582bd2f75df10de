"""Dates that are promised: who is accepted, and what of the cluster is kept for them."""
