"""What an API server answers: the verbs, with their preconditions and refusals, over a fake etcd.

One call, one answer, at one instant: what a network makes of that is for `fake_server`. The contract suite
(tests/kube/contract) holds it to a real one: where the two differ this one is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import count
from typing import Final

import msgspec

from phalanx.testing.kube.api_kinds import ApiKind, ApiPlace, find_place
from phalanx.testing.kube.fake_etcd import CompactedError, FakeEtcd, Key, StoredChange, StoredObject, Tree
from phalanx.testing.kube.merging import matches_fields, matches_labels, merge, merge_strategic
from phalanx.testing.kube.pods_api import (
    NoError,
    bind_pod,
    check_pod_update,
    find_grace_s,
    make_pending,
    refuse_conflict,
    refuse_invalid,
)

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"
#: Of these a scheduler or its user says the status when they make one; of all others it is dropped.
_STATUS_AT_BIRTH: Final = ("nodes", "namespaces")
_SERVERS: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    kind: str = JSON
    user: str = ""

    def read_body(self) -> Tree:
        """As a tree; empty if there is none."""
        found: Tree = msgspec.json.decode(self.body) if self.body else {}
        return found


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """What comes back."""

    code: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class FakeApi:
    """One server; its store may outlive it."""

    def __init__(self, etcd: FakeEtcd, now_s: Callable[[], float]) -> None:
        """`now_s`: seconds since the epoch, by the server's clock."""
        self.etcd = etcd
        self.doing: ApiCall | None = None  # while it is carried out: who listens to the store may ask for whom
        #: A server need not fill a page; with few objects a test of paging has to have small ones.
        self.page_most: int | None = None
        self._now_s = now_s
        self._numbers = count(1)
        self._pages: dict[str, tuple[int, list[StoredObject]]] = {}  # what lists that go on have still to show

    def answer(self, call: ApiCall) -> ApiAnswer:
        """One call, carried out."""
        place = find_place(call.path)
        if place is None:
            return ApiAnswer(HTTPStatus.NOT_FOUND, b"404 page not found\n", {"content-type": "text/plain"})
        self.doing = call
        try:
            return self._carry_out(call, place)
        except NoError as no:
            return tell_no(no)
        finally:
            self.doing = None

    def find_backlog(self, kind: ApiKind, revision: int) -> list[StoredChange]:
        """What a watch from there is told at once."""
        return self.etcd.changes_since(kind.id, revision)

    # ---- verbs

    def _carry_out(self, call: ApiCall, place: ApiPlace) -> ApiAnswer:
        if place.part == "status" and not place.kind.has_status:
            raise NoError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")
        if not place.name and call.method == "GET":
            return self._list(place, call.query)
        if call.method == "POST":
            made = self._post_part(call, place) if place.name else self._create(place, call.read_body()).text
            return ApiAnswer(HTTPStatus.CREATED, made)
        if place.name and call.method in _VERBS:
            return ApiAnswer(HTTPStatus.OK, _VERBS[call.method](self, place, call))
        raise NoError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", f"{call.method} is not served here")

    def _find(self, place: ApiPlace) -> StoredObject:
        found = self.etcd.get(place.key)
        if found is None:
            raise NoError(HTTPStatus.NOT_FOUND, "NotFound", f'{place.kind.id} "{place.name}" not found')
        return found

    def _list(self, place: ApiPlace, query: Mapping[str, str]) -> ApiAnswer:
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        if token := query.get("continue"):
            revision, left = self._pages.get(token, (0, []))
            if not left:
                says = "The provided continue parameter is too old to display a consistent list result."
                raise NoError(HTTPStatus.GONE, "Expired", says)
        else:
            revision = self.etcd.revision
            there = self.etcd.list_all(place.kind.id, place.namespace)
            left = [
                each for _, each in there if matches_labels(each.tree, labels) and matches_fields(each.tree, fields)
            ]
        limit = min(int(query.get("limit") or 0) or len(left), self.page_most or len(left))
        page, rest = left[:limit], left[limit:]
        metadata: Tree = {"resourceVersion": str(revision)}
        if rest:
            token = f"{revision}-{next(self._numbers)}"
            self._pages[token] = revision, rest
            metadata |= {"continue": token, "remainingItemCount": len(rest)}
        head = {"kind": f"{place.kind.kind}List", "apiVersion": place.kind.api, "metadata": metadata}
        items = b",".join(each.text for each in page)
        return ApiAnswer(HTTPStatus.OK, msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}")

    def _create(self, place: ApiPlace, tree: Tree) -> StoredObject:
        kind, metadata = place.kind, dict(tree.get("metadata") or {})
        if kind.namespaced and self.etcd.get(("namespaces", "", place.namespace)) is None:
            raise NoError(HTTPStatus.NOT_FOUND, "NotFound", f'namespaces "{place.namespace}" not found')
        if metadata.get("resourceVersion"):
            says = "resourceVersion should not be set on objects to be created"
            raise NoError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", says)
        number = next(self._numbers)
        if not metadata.get("name"):
            metadata["name"] = f"{metadata['generateName']}{number:05}"
        key: Key = (kind.id, place.namespace, metadata["name"])
        if self.etcd.get(key) is not None:
            says = f'{kind.id} "{metadata["name"]}" already exists'
            raise NoError(HTTPStatus.CONFLICT, "AlreadyExists", says)
        metadata |= {"uid": f"u{number:05}", "creationTimestamp": self._stamp()}
        if not kind.is_built_in:
            metadata["generation"] = 1  # of built-in kinds some count, and nobody here asks
        if kind.namespaced:
            metadata["namespace"] = place.namespace
        if kind.finalizer:
            metadata["finalizers"] = [*metadata.get("finalizers", ()), kind.finalizer]
        made = {**tree, "apiVersion": kind.api, "kind": kind.kind, "metadata": metadata}
        if kind.id == "pods":
            made = make_pending(made)
        elif kind.has_status and kind.id not in _STATUS_AT_BIRTH:
            made.pop("status", None)
        return self.etcd.put(key, made)

    def _get(self, place: ApiPlace, _: ApiCall) -> bytes:
        return self._find(place).text

    def _replace(self, place: ApiPlace, call: ApiCall) -> bytes:
        old, tree = self._find(place), call.read_body()
        metadata = tree.get("metadata") or {}
        version = metadata.get("resourceVersion", "")
        if not version and not place.kind.unconditional:
            raise refuse_invalid(place.kind, place.name, "metadata.resourceVersion: must be specified for an update")
        if metadata.get("uid") and metadata["uid"] != old.tree["metadata"]["uid"]:
            raise refuse_conflict(place.kind, place.name, "Precondition failed: UID in precondition")
        return self._change(place, old, tree).text

    def _patch(self, place: ApiPlace, call: ApiCall) -> bytes:
        old, patch = self._find(place), call.read_body()
        if call.kind == STRATEGIC_PATCH and place.kind.is_built_in:
            tree = merge_strategic(old.tree, patch)
        elif call.kind == MERGE_PATCH:
            tree = merge(old.tree, patch)
        else:
            says = f"the body of the request was in an unknown format: {call.kind}"
            raise NoError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", says)
        return self._change(place, old, tree).text

    def _change(self, place: ApiPlace, old: StoredObject, tree: Tree) -> StoredObject:
        """What PUT and PATCH have in common: whose version, what may change, and what is left out."""
        kind, before = place.kind, old.tree["metadata"]
        metadata = dict(tree.get("metadata") or {})
        if metadata.get("resourceVersion") not in (None, "", before["resourceVersion"]):
            raise refuse_conflict(
                kind, place.name, "the object has been modified; please apply your changes to the latest version"
            )
        if metadata.get("uid", before["uid"]) != before["uid"]:
            raise refuse_invalid(kind, place.name, "metadata.uid: field is immutable")
        # What only the server says of an object stays, whatever was sent.
        metadata = _without(metadata, *_SERVERS) | {word: before[word] for word in _SERVERS if word in before}
        status = tree.get("status", old.tree.get("status")) if place.part == "status" else old.tree.get("status")
        if place.part == "status":
            made = {**old.tree, "metadata": metadata}
        else:
            made = {**tree, "apiVersion": kind.api, "kind": kind.kind, "metadata": metadata}
        if kind.has_status:
            made = {**_without(made, "status"), **({} if status is None else {"status": status})}
        if kind.id == "pods":
            check_pod_update(place, old.tree, made)
        if "generation" in before and made.get("spec") != old.tree.get("spec"):
            metadata["generation"] = before["generation"] + 1
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers") and before.get("finalizers"):
            return self.etcd.remove(place.key)  # nobody has anything to do for it any more
        return self.etcd.put(place.key, made)

    # ---- ends

    def _delete(self, place: ApiPlace, call: ApiCall) -> bytes:
        return self._end(place, call.read_body(), call.query)

    def _end(self, place: ApiPlace, options: Tree, query: Mapping[str, str]) -> bytes:
        old = self._find(place)
        wanted = options.get("preconditions") or {}
        metadata = old.tree["metadata"]
        for word, name in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            if wanted.get(word) and wanted[word] != metadata[word]:
                raise refuse_conflict(place.kind, place.name, f"Precondition failed: {name} in precondition")
        grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        grace_s = find_grace_s(old.tree, None if grace is None else int(grace)) if place.kind.id == "pods" else 0
        waits = bool(metadata.get("finalizers"))
        if not grace_s and not waits:
            self.etcd.remove(place.key)
            return self._say_success(place, metadata)
        until = metadata.get("deletionTimestamp")
        if until is not None and grace_s >= metadata.get("deletionGracePeriodSeconds", 0):
            return old.text  # it is on its way already
        going = {**metadata, "deletionTimestamp": self._stamp(grace_s), "deletionGracePeriodSeconds": grace_s}
        return self.etcd.put(place.key, {**old.tree, "metadata": going}).text

    def _say_success(self, place: ApiPlace, metadata: Tree) -> bytes:
        details = {"name": place.name, "kind": place.kind.plural, "uid": metadata["uid"]}
        return msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details})

    def _post_part(self, call: ApiCall, place: ApiPlace) -> bytes:
        if place.kind.id != "pods" or place.part not in ("binding", "eviction"):
            raise NoError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")
        body = call.read_body()
        if place.part == "binding":
            self.etcd.put(place.key, bind_pod(place, body, lambda: self._find(place), self._stamp()))
        else:
            self._end(place, body.get("deleteOptions") or {}, {})
        done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": HTTPStatus.CREATED}
        return msgspec.json.encode(done)

    def _stamp(self, later_s: int = 0) -> str:
        return datetime.fromtimestamp(int(self._now_s()) + later_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def compact(self) -> None:
        """Forget the past: watches and pages that come from there have to begin anew."""
        self.etcd.compact()
        self._pages.clear()


def tell_no(no: NoError) -> ApiAnswer:
    """A refusal as it goes over the wire."""
    status: Tree = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": no.says, "reason": no.reason}
    headers = {} if no.retry_after_s is None else {"retry-after": str(no.retry_after_s)}
    return ApiAnswer(no.code, msgspec.json.encode({**status, "code": no.code}), headers)


def expire(bad: CompactedError) -> bytes:
    """The line that ends a watch which is too old."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(bad), "reason": "Expired"}
    return msgspec.json.encode({"type": "ERROR", "object": {**status, "code": HTTPStatus.GONE}}) + b"\n"


def bookmark(kind: ApiKind, revision: int) -> bytes:
    """Nothing has happened up to here."""
    object_ = {"kind": kind.kind, "apiVersion": kind.api, "metadata": {"resourceVersion": str(revision)}}
    return msgspec.json.encode({"type": "BOOKMARK", "object": object_}) + b"\n"


def _without(tree: Tree, *words: str) -> Tree:
    return {key: value for key, value in tree.items() if key not in words}


_VERBS: Final[Mapping[str, Callable[[FakeApi, ApiPlace, ApiCall], bytes]]] = {
    "GET": FakeApi._get,  # noqa: SLF001 - its own
    "PUT": FakeApi._replace,
    "PATCH": FakeApi._patch,  # noqa: SLF001 - its own
    "DELETE": FakeApi._delete,  # noqa: SLF001 - its own
}
