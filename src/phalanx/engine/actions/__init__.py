"""One verb per module. Actions share the session and never call each other."""
