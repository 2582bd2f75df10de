"""Vectorised arithmetic of the engine, each kernel beside a plain reference that tests hold it to."""
