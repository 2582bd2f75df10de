"""The Kubernetes controller in virtual time: the real one, down to its bytes, against a fake API server.

`fake_etcd`        objects and every change of them, by one revision for all
`merging`          patches and selectors
`api_kinds`        which kinds there are, and where
`fake_api`         what an API server answers
`pods_api`         what it does with pods that it does with nothing else: binding, eviction, graceful ends
`virtual_network`  connections without sockets, on a loop whose time is a number
`fake_server`      requests and watches over such connections, and what a network does to them
`kube_world`       a cluster put together: server, replicas of the scheduler, kubelets; what a test starts from
`cluster_people`   those who make gangs, and others who schedule
`cluster_troubles` what goes wrong: the API server and the network
`replica_troubles` … those who schedule
`object_troubles`  … pods, gangs and nodes
`cluster_rules`    what must be true of a cluster at every instant
`kube_trials`      random days with random faults, by seed
`kube_plays`       one scenario through the simulator and through the controller
"""
