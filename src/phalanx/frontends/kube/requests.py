"""What a pod asks of one node: amounts and host ports, by exactly the rules of the API.

    main     = Σ containers + Σ sidecars
    init     = the most of any init container together with the sidecars declared before it
    pod      = max(main, init), then what is stated for the pod as a whole instead (cpu, memory, hugepages), + overhead

A sidecar is an init container with `restartPolicy: Always` (KEP-753). Of a pod that was resized in place the most of
what it asks for, was allocated and really has is counted, since the kubelet may still have to give it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from phalanx.control.spec.errors import BadText
from phalanx.frontends.kube.objects.node import NodeObject
from phalanx.frontends.kube.objects.pod import Container, ContainerResources, ContainerStatus, Pod, PodSpec, Quantities
from phalanx.frontends.kube.quantities import CPU, PODS, engine_amount, whole_amount
from phalanx.frontends.kube.remarks import Invalid, quote

Amounts = dict[str, int]

#: Stands for every address of a node.
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - a word of the API; nothing listens here
_PORT_MAX: Final = 65_535
_ALWAYS: Final = "Always"


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port of the node itself: taken by one pod at a time."""

    protocol: str
    port: int
    address: str = ANY_ADDRESS

    def meets(self, other: HostPort) -> bool:
        """Whether both cannot be on one node."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.address == other.address or ANY_ADDRESS in (self.address, other.address)


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What one pod takes of a node, in milli of cpu and units of everything else; equal demands compare equal."""

    amounts: tuple[tuple[str, int], ...]  # sorted by resource, never zero
    ports: tuple[HostPort, ...] = ()

    def need(self, kind_by_resource: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
        """The same for `model.gang.Shape`; devices are called by the engine's word, as configured."""
        found: Amounts = {}
        for resource, units in self.amounts:
            kind = kind_by_resource.get(resource, resource)
            # Two resources may be configured to be one kind, as devices of two vendors are.
            found[kind] = found.get(kind, 0) + engine_amount(units, resource)
        return tuple(sorted(found.items()))


def find_demand(pod: Pod) -> PodDemand | tuple[Invalid, ...]:
    """All that a pod asks of a node, or what of it cannot be read."""
    reader = _AmountReader()
    spec = pod.spec
    asked = _sum_containers(spec, lambda container, path: reader.requests(container.resources, path))
    if _was_resized(pod):
        held = _sum_held(pod, reader)
        # What it asks for and will not get is nobody's: its node has said so.
        asked = _grow(*held) if _is_refused(pod) else _grow(asked, *held)
    if spec.resources is not None:
        asked |= _stated_for_pod(pod, spec.resources, asked, reader)
    asked = _add(asked, reader.amounts(spec.overhead, "spec.overhead"))
    # Every pod takes one of the pods that a node has room for.
    asked[PODS] = asked.get(PODS, 0) + 1
    ports = _host_ports(spec, reader)
    if reader.bad:
        return tuple(reader.bad)
    return PodDemand(tuple(sorted((resource, units) for resource, units in asked.items() if units)), ports)


def find_offer(node: NodeObject) -> Amounts | tuple[Invalid, ...]:
    """What a node offers pods."""
    reader = _AmountReader()
    offered = reader.amounts(node.status.allocatable, "status.allocatable")
    return tuple(reader.bad) or offered


class _AmountReader:
    """Reads quantities and keeps what is wrong with them, so that sums need no error handling."""

    def __init__(self) -> None:
        self.bad: list[Invalid] = []

    def amounts(self, written: Quantities | None, path: str) -> Amounts:
        """Every amount of a list that can be read."""
        found: Amounts = {}
        for resource, text in (written or {}).items():
            try:
                found[resource] = whole_amount(text, resource)
            except BadText as bad:
                self.bad.append(Invalid(f"{path}[{quote(resource)}]", str(bad), "correct the quantity"))
        return found

    def requests(self, resources: ContainerResources | None, path: str) -> Amounts:
        """What is requested. A limit stands for the request that is missing, as the API server fills it in."""
        if resources is None:
            return {}
        requests = self.amounts(resources.requests, f"{path}.requests")
        if not resources.limits:
            return requests
        return self.amounts(resources.limits, f"{path}.limits") | requests


def _sum_containers(spec: PodSpec, ask: Callable[[Container, str], Amounts]) -> Amounts:
    main: Amounts = {}
    for index, container in enumerate(spec.containers or ()):
        main = _add(main, ask(container, f"spec.containers[{index}].resources"))
    sidecars: Amounts = {}
    init: Amounts = {}
    # In the order of declaration: a sidecar runs on beside those that come after it, and not beside those before.
    for index, container in enumerate(spec.init_containers or ()):
        asked = _add(ask(container, f"spec.initContainers[{index}].resources"), sidecars)
        init = _grow(init, asked)
        if container.restart_policy == _ALWAYS:
            main = _add(main, {each: units - sidecars.get(each, 0) for each, units in asked.items()})
            sidecars = asked
    return _grow(main, init)


def _was_resized(pod: Pod) -> bool:
    status = pod.status
    held = (status.container_statuses, status.init_container_statuses, status.resources, status.allocated_resources)
    return any(held) or _is_refused(pod)


def _is_refused(pod: Pod) -> bool:
    """Whether its node has said that the wanted size will never fit there."""
    pending = next((each for each in pod.status.conditions or () if each.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def _sum_held(pod: Pod, reader: _AmountReader) -> tuple[Amounts, Amounts]:
    """What it was allocated, and what it really has: told for the pod as a whole, or by its containers."""
    status = pod.status
    if (
        status.allocated_resources is not None
        and status.resources is not None
        and status.resources.requests is not None
    ):
        allocated = reader.amounts(status.allocated_resources, "status.allocatedResources")
        return allocated, reader.amounts(status.resources.requests, "status.resources.requests")
    listed = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    statuses = {each.name: each for each in listed}
    refused = _is_refused(pod)

    def find_allocated(container: Container, path: str) -> Amounts:
        told = statuses.get(container.name, ContainerStatus())
        if told.allocated_resources is not None:
            return reader.amounts(told.allocated_resources, "status.containerStatuses.allocatedResources")
        return {} if refused else reader.requests(container.resources, path)

    def find_real(container: Container, path: str) -> Amounts:
        told = statuses.get(container.name, ContainerStatus())
        if told.resources is None or told.resources.requests is None:
            return find_allocated(container, path)
        return reader.amounts(told.resources.requests, "status.containerStatuses.resources.requests")

    return _sum_containers(pod.spec, find_allocated), _sum_containers(pod.spec, find_real)


def _stated_for_pod(pod: Pod, resources: ContainerResources, asked: Amounts, reader: _AmountReader) -> Amounts:
    """What stands instead of the sum. Its limit counts only for what no container requests, as the API fills it in."""
    stated = reader.amounts(resources.requests, "spec.resources.requests")
    limits = reader.amounts(resources.limits, "spec.resources.limits")
    stated = {resource: units for resource, units in limits.items() if resource not in asked} | stated
    held = pod.status.resources
    if stated and held is not None:
        # Resized as a whole: as with containers, the most of what is asked for, allocated and there.
        known = reader.amounts(held.requests, "status.resources.requests")
        allocated = reader.amounts(pod.status.allocated_resources, "status.allocatedResources")
        stated = _grow({} if _is_refused(pod) else stated, known, allocated)
    return {resource: units for resource, units in stated.items() if _is_pod_level(resource)}


def takes_host_ports(pod: Pod) -> bool:
    """Whether any container asks for a port of the node."""
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    return any(port.host_port for each in containers for port in each.ports or ())


def _host_ports(spec: PodSpec, reader: _AmountReader) -> tuple[HostPort, ...]:
    found: set[HostPort] = set()
    # Of init containers only sidecars: the others are gone before anybody could meet them.
    holders: list[tuple[str, Container]] = [
        (f"spec.initContainers[{index}]", container)
        for index, container in enumerate(spec.init_containers or ())
        if container.restart_policy == _ALWAYS
    ]
    holders += [(f"spec.containers[{index}]", container) for index, container in enumerate(spec.containers or ())]
    for path, container in holders:
        for place, port in enumerate(container.ports or ()):
            if not 0 <= port.host_port <= _PORT_MAX:
                field = f"{path}.ports[{place}].hostPort"
                reader.bad.append(Invalid(field, f"is no port (got {quote(port.host_port)})", "write 1 to 65535"))
            elif port.host_port:
                found.add(HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY_ADDRESS))
    return tuple(sorted(found))


def _is_pod_level(resource: str) -> bool:
    # The API lets nothing else be stated for the pod as a whole.
    return resource in (CPU, "memory") or resource.startswith("hugepages-")


def _add(one: Amounts, other: Amounts) -> Amounts:
    return {resource: one.get(resource, 0) + other.get(resource, 0) for resource in _keys((one, other))}


def _grow(*several: Amounts) -> Amounts:
    return {resource: max(each.get(resource, 0) for each in several) for resource in _keys(several)}


def _keys(several: Iterable[Amounts]) -> dict[str, None]:
    return dict.fromkeys(resource for each in several for resource in each)
