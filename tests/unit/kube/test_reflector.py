"""What is seen of a kind whose definition comes, goes, and changes its version while somebody watches."""

from __future__ import annotations

import asyncio
import contextlib
import json

from kube_objects import metadata

from phalanx.frontends.kube.api.api_client import ApiRefusedError
from phalanx.frontends.kube.api.reflector import Reflector
from phalanx.frontends.kube.gang_view import Dialect
from phalanx.frontends.kube.mirror import GROUPS

BETA, ALPHA = (f"/apis/scheduling.k8s.io/{version}/podgroups" for version in ("v1beta1", "v1alpha2"))
#: As 1.36 lists it: items of its own kinds do not say which version they are of.
RECORDED = {
    "kind": "PodGroupList",
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "metadata": {"resourceVersion": "812"},
    "items": [
        {
            "metadata": metadata("g", finalizers=["scheduling.k8s.io/podgroup-protection"]),
            "spec": {
                "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
                "schedulingPolicy": {"gang": {"minCount": 4}},
                "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
                "disruptionMode": "PodGroup",
                "priority": 0,
            },
            "status": {"conditions": [{"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable"}]},
        }
    ],
}


def page(version, *names):
    items = [{"metadata": metadata(name)} for name in names]
    return {"apiVersion": f"scheduling.k8s.io/{version}", "metadata": {"resourceVersion": "1"}, "items": items}


class MadeUpApi:
    """Lists by path; a path that is not there is not served. Each watch lasts until the server is changed."""

    def __init__(self):
        self.pages, self.watched = {}, []
        self.changed, self.begun = asyncio.Event(), asyncio.Event()

    def serve(self, pages):
        self.pages = pages
        self.changed.set()
        self.changed = asyncio.Event()

    def _check(self, path):
        if path not in self.pages:
            raise ApiRefusedError(f"GET {path}", 404, "NotFound", "the server could not find the requested resource")

    async def list_watched(self):
        """Once there is one."""
        await asyncio.wait_for(self.begun.wait(), 5)
        return self.watched

    async def get(self, path, **_):
        self._check(path)
        return json.dumps(self.pages[path]).encode()

    @contextlib.asynccontextmanager
    async def stream(self, path, *_, **__):
        self._check(path)
        self.watched.append(path)
        self.begun.set()

        async def lines():
            await self.changed.wait()
            self._check(path)
            for _ in ():
                yield b""

        yield lines()


class Seen:
    """What a reflector tells."""

    def __init__(self):
        self.objects, self.told = None, asyncio.Event()

    def replace_all(self, objects):
        self.objects = objects
        self.told.set()

    def note_absent(self):
        self.replace_all(None)

    async def wait(self, *, absent=False):
        """The next list, or that there is none."""
        while True:
            await asyncio.wait_for(self.told.wait(), 5)
            self.told.clear()
            if (self.objects is None) is absent:
                return self.objects


def watch(script):
    async def main():
        api, seen = MadeUpApi(), Seen()
        reflector = Reflector(api, GROUPS[Dialect.NATIVE], seen, lambda *_: None, absent_s=0.01)
        task = asyncio.create_task(reflector.run())
        try:
            await script(api, seen)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_the_newest_version_that_is_served_is_listed_and_objects_are_of_it():
    async def script(api, seen):
        api.serve({ALPHA: RECORDED})
        (group,) = await seen.wait()
        assert group.api_version == "scheduling.k8s.io/v1alpha2", (
            "or its status is written to a version that is not there"
        )
        assert group.spec.disruption_mode == "PodGroup"
        assert group.spec.scheduling_policy.gang.min_count == 4
        assert await api.list_watched() == [ALPHA]
        # The server is replaced by one of 1.37.
        api.serve({BETA: page("v1beta1", "h")})
        found = await seen.wait()
        assert [(each.metadata.name, each.api_version) for each in found] == [("h", "scheduling.k8s.io/v1beta1")]

    watch(script)


def test_a_server_that_has_both_is_asked_for_the_newer_one_only():
    async def script(api, seen):
        api.serve({ALPHA: RECORDED, BETA: page("v1beta1", "h")})
        await seen.wait()
        assert await api.list_watched() == [BETA]

    watch(script)


def test_a_definition_that_comes_goes_and_comes_again():
    async def script(api, seen):
        await seen.wait(absent=True)
        for _ in range(2):
            api.serve({BETA: page("v1beta1", "g")})
            found = await seen.wait()
            assert [each.metadata.name for each in found] == ["g"]
            api.serve({})
            await seen.wait(absent=True)

    watch(script)
