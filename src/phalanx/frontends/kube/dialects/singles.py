"""Pods that name no gang: each is one by itself. Deployments, plain Jobs and bare pods are scheduled this way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from phalanx.frontends.kube.gang_view import GangKey, MatchPolicy, Statement
from phalanx.frontends.kube.objects.pod import Pod

KIND: Final = "Pod"


def find_group_name(pod: Pod) -> tuple[str, str]:
    """Its own name: whoever asks last finds every pod."""
    return pod.metadata.name, "metadata.name"


def find_statement(key: GangKey, group: None, pods: Sequence[Pod], priority_by_class: Mapping[str, int]) -> Statement:
    """A gang of one."""
    del key, group, priority_by_class  # there is no object, and admission has written the priority in
    metadata = pods[0].metadata if pods else None
    return Statement(
        match=MatchPolicy.ONCE_SATISFIED,
        uid=metadata.uid if metadata else "",
        created=(metadata.creation_timestamp or "") if metadata else "",
    )
