"""Surplus is divided: shares for dates first, then the rest by worth, and anew between those who run (rule 16)."""
