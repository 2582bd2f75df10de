"""Room for a blocked gang at the expense of running ones: who may take what from whom, and the gentlest way."""
