"""For tests, ours and yours: worlds to build, worlds to draw, and readings to hold the engine to.

`builders`    nodes and gangs in one line each
`worlds`      whole scenarios drawn from a `random.Random`
`drawn`       snapshots drawn by a seed, `digests` what the engine decides about them
`checking`    the engine with every promise checked on every call
`exhaustive`  where a gang could go, by trying everything
`textbook`    FCFS, EASY and conservative backfilling as the papers have them, on one pool of processors
`hosts`       the whole daemon of one machine in virtual time
`controlplane`  a whole real Kubernetes control plane on loopback

Nothing here is imported by the product.
"""
