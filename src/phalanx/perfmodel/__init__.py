"""Speed-up curves over plain numbers: how run time changes with the number of members.

Standard library only, because the in-job library imports it as well as the engine.
"""
