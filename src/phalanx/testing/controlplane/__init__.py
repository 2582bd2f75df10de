"""A whole, real Kubernetes control plane on loopback: for live tests, demonstrations and benchmarks.

`plane`        start it, stop it, kill a part of it, take a copy of its state; what one begins with
`binaries`     which versions, and where the programs are
`flags`        the command line of each program
`credentials`  who may speak to it: tokens, kubeconfig files
`rest`         a small blocking client
`warden`       the process that owns all of them and ends them, whatever becomes of the test
`fake_nodes`   machines that are objects only, and pods to put on them
`crds`         the kinds of other gang schedulers
`kubelet`      moves bound pods on, since nobody runs them
`standing_in`  a program of this machine behind a Service, for the API server's proxy
`demo_kube`    all of it as a show: `make demo-kube`

    with ControlPlane(PlaneSettings(scheduler=True)) as plane:
        plane.api.create_all("/api/v1/nodes", make_nodes("16x8"))
        subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig("admin"), "get", "nodes"])

Everything above the kubelet is real; machines are objects. `make controlplane` obtains the programs.
"""
