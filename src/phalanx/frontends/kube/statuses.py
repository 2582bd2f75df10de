"""What is written back: how a gang is, where each dialect expects to read it, as patches; one event per reason.

Pure: the instant comes in, patches come out, and where nothing would change there is none, so that a gang that waits an
hour for one reason is written once. The first word of every message is the reason's code, the same everywhere; what the
dialects call it beside that is their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from phalanx.frontends.kube.gang_view import Dialect, GangKey, GangView, MemberPhase, PodMember
from phalanx.frontends.kube.objects.groups import GroupObject, NativePodGroup, PluginsPodGroup, VolcanoPodGroup
from phalanx.frontends.kube.objects.metadata import Condition
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.remarks import Invalid, Remark, Unsupported, blocks, call, make_printable
from phalanx.model.reason import Code

#: Codes that more or other nodes would cure. Only these may make a cluster autoscaler act.
LACKS_ROOM: Final = frozenset(
    {
        *(Code.INFEASIBLE, Code.CAPACITY, Code.FRAGMENTATION, Code.TOPOLOGY, Code.NODE_CONSTRAINT),
        Code.NEIGHBOURS,  # on a new node nobody is in the way
    }
)
#: The word for a legal wish that is not honoured; it has no code, since the engine never sees such a gang.
UNSUPPORTED: Final = "Unsupported"

#: Words for what somebody has to correct.
_TO_CORRECT: Final = frozenset({UNSUPPORTED, Code.INVALID_SPEC.word})

_MESSAGE_CHARS_MAX: Final = 900
_UNSCHEDULABLE: Final = "Unschedulable"
#: After these the plugins' own controllers do not look at a group any more, and neither counts nor phase change.
_FINAL_PHASES: Final = frozenset({"Finished", "Failed"})
_POD_SCHEDULED: Final = "PodScheduled"


class GangStanding(Enum):
    """Whether a gang has what it needs."""

    WAITING = "waiting"
    BOUND = "bound"  # as many members have places, or are done, as it needs


@dataclass(frozen=True, slots=True)
class Tiding:
    """What there is to tell of one gang: how it is, and the dominant reason of those of its members that wait."""

    standing: GangStanding
    places: str  # how many members have theirs
    word: str = ""  # a code of the closed set as people read it (`Capacity`), or `Unsupported`; empty: nobody waits
    message: str = ""
    lacks_room: bool = False
    needed: int = 0
    available: int = 0

    @property
    def cause(self) -> str:
        """Why members wait, in one line that begins with the word."""
        return f"{self.word}: {self.message}"[:_MESSAGE_CHARS_MAX] if self.word else self.message[:_MESSAGE_CHARS_MAX]

    @property
    def text(self) -> str:
        """How the gang is, in one line; of a waiting one that is the cause."""
        return self.places if self.standing is GangStanding.BOUND else self.cause


class PatchKind(Enum):
    """How a patch is meant."""

    MERGE = "application/merge-patch+json"  # custom resources know no other; lists are replaced whole
    STRATEGIC = "application/strategic-merge-patch+json"  # lists are merged by key


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """One write to the status of one object."""

    api_version: str
    kind: str
    namespace: str
    name: str
    patch_kind: PatchKind
    body: dict[str, Any]
    subresource: str = "status"  # empty where the kind has none, and the object itself is patched


@dataclass(frozen=True, slots=True)
class GangEvent:
    """One event of a gang. Those with equal `series` are one series: the gang and the reason, never the pod."""

    key: GangKey
    api_version: str
    kind: str
    name: str
    uid: str
    type: str  # Normal or Warning
    reason: str
    action: str
    note: str

    @property
    def series(self) -> tuple[str, str]:
        """By what it is counted rather than written again."""
        return self.key.unique, self.reason


# ---- what there is to tell


def tell_gang(view: GangView, code: Code = Code.NONE, message: str = "", needed: int = 0, available: int = 0) -> Tiding:
    """What to tell of a gang: what its objects keep it from, else the reason that the engine gave."""
    least = view.said.members_min
    # By what it holds, not by who still waits: surplus that finds no room takes nothing from a gang that runs.
    standing = GangStanding.BOUND if view.holding >= least else GangStanding.WAITING
    places = f"{view.holding} of at least {least} members have their places"
    if view.blockers:
        gravest = view.blockers[0]
        return Tiding(standing, places, tell_word(gravest, view), gravest.sentence)
    if standing is GangStanding.BOUND and not view.count(MemberPhase.WAITING, MemberPhase.HELD):
        # Under `only-waiting` a gang that runs has no waiting members, and lacks none.
        return Tiding(standing, places)
    if view.missing:
        asked = max(view.outstanding, view.said.members_total)
        arrived = max(0, asked - view.missing)
        says = f"{arrived} of {asked} members are there; {view.missing} more must be created"
        return Tiding(standing, places, Code.GANG_INCOMPLETE.word, says, needed=asked, available=arrived)
    if code is not Code.NONE:
        return Tiding(standing, places, code.word, message, code in LACKS_ROOM, needed, available)
    return Tiding(standing, places, message=message or "waits to be looked at")


def tell_word(remark: Remark, view: GangView) -> str:
    """The word of the closed set for what keeps a gang, or one of its members, from starting."""
    if isinstance(remark, Unsupported):
        return UNSUPPORTED
    if isinstance(remark, Invalid):
        return Code.INVALID_SPEC.word
    # A group or gang that is not there yet makes it incomplete; a gate or a claim on its pods holds it.
    return Code.GANG_INCOMPLETE.word if remark in view.remarks else Code.HELD.word


def make_event(view: GangView, group: GroupObject | None, tiding: Tiding) -> GangEvent:
    """The one event of a gang for this reason: on its object, or on its first pod if it has none."""
    bound = tiding.standing is GangStanding.BOUND
    if group is not None:
        whose = (group.api_version, "PodGroup", view.key.name, group.metadata.uid)
    else:
        first = view.members[0] if view.members else None
        whose = ("v1", "Pod", first.name if first else view.key.name, first.uid if first else "")
    return GangEvent(
        view.key,
        *whose,
        type="Normal" if bound else "Warning",
        reason="Scheduled" if bound else tiding.word or "Waiting",
        action="Binding" if bound else "Scheduling",
        note=make_printable(tiding.text),
    )


# ---- groups


def patch_group(group: GroupObject, view: GangView, tiding: Tiding, now: str) -> StatusPatch | None:
    """What to write to a gang's own object, or None if it says so already. `now` is RFC 3339."""
    if isinstance(group, NativePodGroup):
        body = _native_status(group, tiding, now)
        # Its conditions are merged by type: those of others stay without being repeated.
        return _patch(group, PatchKind.STRATEGIC, body)
    if isinstance(group, VolcanoPodGroup):
        return _patch(group, PatchKind.MERGE, _volcano_status(group, view, tiding, now))
    return _patch(group, PatchKind.MERGE, _counts_status(group, view, now))


def _patch(group: GroupObject, kind: PatchKind, status: dict[str, Any]) -> StatusPatch | None:
    if not status:
        return None
    body: dict[str, Any] = {"status": status}
    if kind is PatchKind.MERGE:
        # Lists go whole, so that it has to be the object that was looked at, or what others wrote is lost.
        body["metadata"] = {"resourceVersion": group.metadata.resource_version}
    metadata = group.metadata
    # The definitions of Volcano and Koordinator have no subresource for it; there the same patch goes to the object.
    whole = isinstance(group, VolcanoPodGroup) or (isinstance(group, PluginsPodGroup) and _is_koordinators(group))
    subresource = "" if whole else "status"
    return StatusPatch(group.api_version, "PodGroup", metadata.namespace, metadata.name, kind, body, subresource)


def _native_status(group: NativePodGroup, tiding: Tiding, now: str) -> dict[str, Any]:
    # Renamed when the API became beta.
    type_ = "PodGroupScheduled" if group.api_version.endswith("alpha2") else "PodGroupInitiallyScheduled"
    old = _find_condition(group.status.conditions, type_)
    if old is not None and old.status == "True":
        return {}  # it never reverts, by the words of the API
    if tiding.standing is GangStanding.BOUND:
        made = _condition(type_, "True", "Scheduled", tiding.text, now)
    else:
        # The API knows two reasons for False; ours is the first word of the message.
        made = _condition(type_, "False", _UNSCHEDULABLE, tiding.text, now)
    made["observedGeneration"] = group.metadata.generation
    kept = _keep_time(old, made)
    return {"conditions": [kept]} if kept else {}


def _counts_status(group: PluginsPodGroup, view: GangView, now: str) -> dict[str, Any]:
    """Phase and counts, by the rules of the plugins' own controllers, so that it does not matter whether one runs."""
    old = group.status
    if old.phase in _FINAL_PHASES:
        return {}
    counts = {
        "running": sum(member.running for member in view.members),
        "succeeded": view.count(MemberPhase.SUCCEEDED),
        "failed": view.count(MemberPhase.FAILED),
    }
    if _is_koordinators(group):
        # The other one has no such field: it would be pruned, and be missing again whenever somebody looked.
        counts["scheduled"] = view.holding
    wanted: dict[str, Any] = {"phase": _counts_phase(group, view, counts), **counts}
    known = {"phase": old.phase, **{name: getattr(old, name) for name in counts}}
    status = {name: value for name, value in wanted.items() if value != known[name]}
    if "phase" in status and wanted["phase"] == "Scheduling" and old.schedule_start_time is None:
        status["scheduleStartTime"] = now
    return status


def _counts_phase(group: PluginsPodGroup, view: GangView, counts: dict[str, int]) -> str:
    least = group.spec.min_member
    there = len(view.members) - view.count(MemberPhase.GONE)
    if counts["succeeded"] >= least > 0:
        return "Finished"
    if counts["failed"] and counts["failed"] + counts["running"] + counts["succeeded"] >= least:
        return "Failed"
    if there < least:
        return "Pending"
    if counts["running"] + counts["succeeded"] >= least:
        return "Running"
    # Only Koordinator's fork has a word for what is bound and not yet running.
    return "Scheduled" if _is_koordinators(group) and view.holding >= least else "Scheduling"


def _is_koordinators(group: PluginsPodGroup) -> bool:
    return group.api_version.startswith("scheduling.sigs.k8s.io")


def _volcano_status(group: VolcanoPodGroup, view: GangView, tiding: Tiding, now: str) -> dict[str, Any]:
    phase = _volcano_phase(view, tiding)
    wanted: dict[str, Any] = {
        "phase": phase,
        "running": sum(member.running for member in view.members),
        "succeeded": view.count(MemberPhase.SUCCEEDED),
        "failed": view.count(MemberPhase.FAILED),
    }
    old = group.status
    status = {name: value for name, value in wanted.items() if value != getattr(old, name)}
    conditions = _volcano_conditions(group, tiding, now)
    if conditions is not None:
        status["conditions"] = conditions
    return status


def _volcano_phase(view: GangView, tiding: Tiding) -> str:
    """Its word for how far a gang is.

    `Inqueue` comes as soon as there is nothing wrong with the group, pods or no pods: its controller and the training
    operators make the pods when they read it, and without pods no autoscaler sees that anybody wants room.
    """
    ended = view.count(MemberPhase.SUCCEEDED, MemberPhase.FAILED)
    if view.members and ended == len(view.members):
        return "Completed"
    if view.satisfied and view.holding >= view.said.members_min:
        return "Running"
    if view.regressed:
        return "Unknown"
    return "Pending" if tiding.word in _TO_CORRECT else "Inqueue"


def _volcano_conditions(group: VolcanoPodGroup, tiding: Tiding, now: str) -> list[dict[str, Any]] | None:
    bound = tiding.standing is GangStanding.BOUND
    type_, reason = ("Scheduled", "tasks in gang are ready to be scheduled") if bound else (_UNSCHEDULABLE, "")
    if not bound:
        reason = "NotEnoughTasks" if tiding.word == Code.GANG_INCOMPLETE.word else "NotEnoughResources"
    made = _condition(type_, "True", reason, tiding.text, now)
    # It compares these to see whether a session has spoken anew; the version that was looked at is as good a name.
    made["transitionID"] = group.metadata.resource_version
    old = _find_condition(group.status.conditions, type_)
    kept = _keep_time(old, made)
    if kept is None:
        return None
    # The other of the two would contradict it; what others wrote stays.
    others = [each for each in group.status.conditions or () if each.type not in ("Scheduled", _UNSCHEDULABLE)]
    return [*map(_as_dict, others), kept]


# ---- pods


def patch_pod(pod: Pod, member: PodMember, view: GangView, tiding: Tiding, now: str) -> StatusPatch | None:
    """What to write to a member that has no place, or None.

    `Unschedulable` makes a cluster autoscaler act, so only members of gangs that lack room are told so, and it is taken
    back when the reason becomes another. Others are left alone, except for what has to be corrected: that is told
    where `kubectl describe pod` shows it.
    """
    if member.phase not in (MemberPhase.WAITING, MemberPhase.HELD):
        return None
    word, cause = _find_cause(member, view, tiding)
    old = _find_condition(pod.status.conditions, _POD_SCHEDULED)
    if tiding.lacks_room and member.phase is MemberPhase.WAITING:
        reason = _UNSCHEDULABLE
    elif word in _TO_CORRECT or (old is not None and old.reason == _UNSCHEDULABLE):
        reason = word or "Waiting"
    else:
        return None
    # Of one gang and reason it is written once; the numbers of the day are on the gang's own object.
    if old is not None and (old.status, old.reason) == ("False", reason):
        return None
    whose = "" if view.key.dialect is Dialect.PLAIN else f"gang {call(view.key)}: "
    made = _condition(_POD_SCHEDULED, "False", reason, f"{whose}{cause}"[:_MESSAGE_CHARS_MAX], now)
    body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [made]}}
    return StatusPatch("v1", "Pod", pod.metadata.namespace, pod.metadata.name, PatchKind.STRATEGIC, body)


def _find_cause(member: PodMember, view: GangView, tiding: Tiding) -> tuple[str, str]:
    """Its own, if it has one: a gang may do without it, and then says nothing of it."""
    for remark in blocks(member.remarks):
        word = tell_word(remark, view)
        return word, f"{word}: {remark.sentence}"
    return tiding.word, tiding.cause


# ---- conditions


def _condition(type_: str, status: str, reason: str, message: str, now: str) -> dict[str, Any]:
    says = make_printable(message)
    return {"type": type_, "status": status, "reason": reason, "message": says, "lastTransitionTime": now}


def _keep_time(old: Condition | None, made: dict[str, Any]) -> dict[str, Any] | None:
    """The new condition with the old instant if the status is the same; None if it says nothing new."""
    if old is None:
        return made
    if (old.status, old.reason, old.message) == (made["status"], made["reason"], made["message"]):
        return None
    if old.status == made["status"] and old.last_transition_time:
        return {**made, "lastTransitionTime": old.last_transition_time}
    return made


def _find_condition(conditions: tuple[Condition, ...] | None, type_: str) -> Condition | None:
    return next((each for each in conditions or () if each.type == type_), None)


#: Fields of a condition as the API spells them, with how they are read.
_CONDITION_FIELDS: Final[tuple[tuple[str, Callable[[Condition], object]], ...]] = (
    ("type", lambda each: each.type),
    ("status", lambda each: each.status),
    ("reason", lambda each: each.reason),
    ("message", lambda each: each.message),
    ("lastTransitionTime", lambda each: each.last_transition_time),
    ("observedGeneration", lambda each: each.observed_generation),
    ("transitionID", lambda each: each.transition_id),
)


def _as_dict(condition: Condition) -> dict[str, Any]:
    return {name: value for name, read in _CONDITION_FIELDS if (value := read(condition))}
