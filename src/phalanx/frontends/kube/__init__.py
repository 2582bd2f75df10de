"""Kubernetes: reads everyone's gang objects, decides with the one engine, binds, explains.

What is here now is the pure half: objects in, gangs out (`translating`), and what is to be written back (`statuses`).
It does no IO and reads no clock; whoever lists, watches and binds calls it.
"""
