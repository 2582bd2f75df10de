"""The fake API server as the blocking client of real ones sees it, so that one suite can be held against both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from phalanx.testing.controlplane.rest import JSON, KubeRefusedError, RestVerbs
from phalanx.testing.kube.api_kinds import find_place
from phalanx.testing.kube.fake_api import ApiCall, FakeApi
from phalanx.testing.kube.fake_etcd import CompactedError, FakeEtcd

_START_S: Final = 1_700_000_000


class FakeRest(RestVerbs):
    """The calls of `KubeRest`; nothing takes any time."""

    def __init__(self) -> None:
        """A new server with a namespace."""
        self.fake = FakeApi(FakeEtcd(), lambda: float(_START_S))
        self.create("/api/v1/namespaces", {"metadata": {"name": "default"}})

    def call(
        self,
        method: str,
        path: str,
        tree: object = None,
        *,
        query: Mapping[str, object] | None = None,
        kind: str = JSON,
    ) -> Any:
        """Any call."""
        asked = {key: str(value) for key, value in (query or {}).items()}
        body = b"" if tree is None else msgspec.json.encode(tree)
        answer = self.fake.answer(ApiCall(method, path, asked, body, kind))
        is_json = not answer.headers.get("content-type", JSON).startswith("text/")
        told = msgspec.json.decode(answer.body) if is_json else answer.body.decode()
        if answer.code >= HTTPStatus.BAD_REQUEST:
            status = told if isinstance(told, dict) else {"message": told}
            raise KubeRefusedError(f"{method} {path}", answer.code, status)
        return told

    def watch(self, path: str, resource_version: str, limit_s: float = 0.0, **query: object) -> Iterator[Any]:
        """What has happened since then; of what is still to come there is nothing."""
        del limit_s, query
        place = find_place(path)
        assert place is not None
        try:
            backlog = self.fake.find_backlog(place.kind, int(resource_version))
        except CompactedError as bad:
            raise KubeRefusedError(
                f"watch {path}", HTTPStatus.GONE, {"reason": "Expired", "message": str(bad)}
            ) from bad
        for change in backlog:
            if not place.namespace or place.namespace == change.key[1]:
                yield msgspec.json.decode(change.line)
