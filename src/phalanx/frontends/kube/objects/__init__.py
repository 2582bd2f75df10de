"""Narrow shapes of Kubernetes objects: the fields that a scheduler needs, by noun, and how they are read from JSON."""
