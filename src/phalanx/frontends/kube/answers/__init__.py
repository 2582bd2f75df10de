"""What a running scheduler answers: ps, why, fit, gantt, a dump. Read only; nothing in here can change a cluster.

`cluster_view`   everything that is known at one instant, copied in the event loop
`looking`   reasons and expected starts of everybody in it, worked out in another thread
`gang_rows`, `gang_whys`, `kube_gantt`, `kube_dump`, `fitting`   one answer each, from those two
`manifest_reading`, `templates`   manifests as people write them, for `fitting`
`desk`      which path is which answer, one at a time, for as long as it is good
"""
