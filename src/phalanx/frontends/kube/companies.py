"""Words for companies: of whom rules about other pods speak, and which pods those are.

A selector is asked only as long as some pod's rule has it. Pods and selectors are filed under one label that both name,
where there is one, so that neither a new pod is held against every selector nor a new selector against every pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from phalanx.frontends.kube.neighbours import Companions
from phalanx.frontends.kube.requests import ANY_ADDRESS, HostPort
from phalanx.frontends.kube.selectors import IN

Name = tuple[str, str]  # namespace and name
Anchor = tuple[str, str, str]  # namespace, key and value of a label

_NOTHING: Final[Mapping[str, str]] = {}


class Companies:
    """All pods by what rules select them by, and all companies that rules speak of just now."""

    def __init__(self) -> None:
        self._labels: dict[Name, Mapping[str, str]] = {}
        self._asked: dict[Name, tuple[Companions, ...]] = {}
        self._ports: dict[Name, tuple[HostPort, ...]] = {}
        self._users: Counter[Companions] = Counter()
        self._anchored: dict[Anchor, set[Companions]] = {}
        self._loose: set[Companions] = set()
        self._by_anchor: dict[Anchor, set[Name]] = {}
        self._by_port: dict[tuple[str, int], set[Name]] = {}
        self._changed: set[Name] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no rule of anybody speaks of others."""
        return not (self._users or self._by_port)

    def note(
        self, name: Name, labels: Mapping[str, str] | None, asked: Sequence[Companions], ports: Sequence[HostPort]
    ) -> None:
        """A pod as it is now, with the companies that its rules speak of and the ports that it takes of its node."""
        labels = labels or _NOTHING
        if self._labels.get(name) != labels:
            self._unfile(name)
            self._labels[name] = labels
            for anchor in _anchors_of(name, labels):
                self._by_anchor.setdefault(anchor, set()).add(name)
            self._changed.add(name)
        if self._asked.get(name, ()) != tuple(asked):
            self._ask(name, tuple(asked))
        if self._ports.get(name, ()) != tuple(ports):
            self._take_ports(name, tuple(ports))

    def forget(self, name: Name) -> None:
        """It is gone, or at its end."""
        self._ask(name, ())
        self._take_ports(name, ())
        self._unfile(name)

    def hand_over(self) -> set[Name]:
        """Pods of which rules may speak otherwise than when this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

    def list_words(self, name: Name) -> tuple[str, ...]:
        """The companies of which a pod is one, by their words."""
        labels = self._labels.get(name)
        if labels is None or not self._users:
            return ()
        near = [self._anchored.get(anchor, ()) for anchor in _anchors_of(name, labels)]
        found = {each for some in (*near, self._loose) for each in some if each.includes(name[0], None, labels)}
        return tuple(sorted(name_company(each) for each in found))

    def _ask(self, name: Name, asked: tuple[Companions, ...]) -> None:
        before = self._asked.pop(name, ())
        if asked:
            self._asked[name] = asked
        # First the new ones: a selector that only changes hands is not looked up again.
        for company in asked:
            self._users[company] += 1
            if self._users[company] == 1:
                self._open(company)
        for company in before:
            self._users[company] -= 1
            if not self._users[company]:
                del self._users[company]
                self._close(company)
        if asked or before:
            self._changed.add(name)

    def _open(self, company: Companions) -> None:
        anchors = anchor_company(company)
        for anchor in anchors:
            self._anchored.setdefault(anchor, set()).add(company)
            self._changed |= self._by_anchor.get(anchor, set())
        if not anchors:
            self._loose.add(company)
            self._changed |= self._labels.keys()

    def _close(self, company: Companions) -> None:
        # Whoever is one of them goes on bearing the word for as long as nothing else changes: no rule speaks of it.
        self._loose.discard(company)
        for anchor in anchor_company(company):
            some = self._anchored[anchor]
            some.discard(company)
            if not some:
                del self._anchored[anchor]

    def _take_ports(self, name: Name, ports: tuple[HostPort, ...]) -> None:
        for port in self._ports.pop(name, ()):
            some = self._by_port.get((port.protocol, port.port), set())
            some.discard(name)
            if not some:
                self._by_port.pop((port.protocol, port.port), None)
        for port in ports:
            self._by_port.setdefault((port.protocol, port.port), set()).add(name)
        if ports:
            self._ports[name] = ports
        self._changed.add(name)

    def _unfile(self, name: Name) -> None:
        for anchor in _anchors_of(name, self._labels.pop(name, _NOTHING)):
            some = self._by_anchor[anchor]
            some.discard(name)
            if not some:
                del self._by_anchor[anchor]


def _anchors_of(name: Name, labels: Mapping[str, str]) -> list[Anchor]:
    return [(name[0], key, value) for key, value in labels.items()]


def anchor_company(company: Companions) -> list[Anchor]:
    """Labels one of which every pod of the company has; none if it cannot be told."""
    if company.selector is None or company.namespace_selector is not None:
        return []
    listed = next((each for each in company.selector.expressions if each.operator == IN), None)
    if listed is None:
        return []
    return [(namespace, listed.key, value) for namespace in company.namespaces for value in listed.values]


def name_company(company: Companions) -> str:
    """A word for whoever is selected: equal for equal companies and no others, and fit to be read."""
    if company.selector is None:
        return "nobody"
    where = "all namespaces" if company.namespace_selector is not None else "|".join(company.namespaces)
    parts = [f"{each.key} {each.operator} {'|'.join(each.values)}".rstrip() for each in company.selector.expressions]
    return f"{where}: {' & '.join(parts).replace(' In ', '=') or 'all pods'}"


def name_ports(ports: Sequence[HostPort]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Words that whoever takes these ports bears, and words it must be apart from on its node.

    A port on all addresses is in the way of each, and each of that one; on two addresses it is two ports.
    """
    bears, apart = set[str](), set[str]()
    for port in ports:
        word = f"host port {port.protocol}/{port.port}"
        anywhere, here = f"{word} on all addresses", f"{word} on {port.address}"
        bears |= {word, anywhere if port.address == ANY_ADDRESS else here}
        apart |= {word} if port.address == ANY_ADDRESS else {anywhere, here}
    return tuple(sorted(bears)), tuple(sorted(apart))
