"""The rims: each turns one world (a virtual clock, a host, a cluster) into events and carries out plans."""
