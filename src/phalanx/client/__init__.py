"""The daemon as programs call it: HTTP over its unix socket, with the standard library only.

The command line and `phalanx.submit` both stand on this package. It imports nothing of the scheduler and
nothing heavy, because `phalanx ps` is put under `watch` and into shell prompts.
"""
