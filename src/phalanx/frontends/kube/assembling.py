"""Puts a gang together from what is said of it and its members, and checks that they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from phalanx.frontends.kube.constraints import PodShape
from phalanx.frontends.kube.gang_view import GangKey, GangView, MatchPolicy, MemberPhase, PodMember, PodRole, Statement
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.pod_members import order_members
from phalanx.frontends.kube.remarks import Invalid, Notice, Remark, quote

_ENDED = (MemberPhase.SUCCEEDED, MemberPhase.FAILED, MemberPhase.GONE)
_NEVER = "Never"
#: The name of a role whose pods say nothing of what they are.
_SOLE_TASK = "member"


def assemble(key: GangKey, said: Statement, pods: Sequence[Pod], members: Sequence[PodMember]) -> GangView:
    """The gang of these pods; `members` are the same pods as members, one for one."""
    live = [pod for pod, member in zip(pods, members, strict=True) if member.phase not in _ENDED]
    schedulers = sorted({pod.spec.scheduler_name for pod in live or pods})
    ordered = order_members(tuple(members))
    view = GangView(
        key=key,
        said=said,
        members=ordered,
        roles=(),
        priority=_find_priority(said, live),
        preempts=(said.preemption_policy or _first_policy(live)) != _NEVER,
        scheduler=schedulers[0] if schedulers else "",
        kill_after_s=find_kill_after(live),
        remarks=(*said.remarks, *_check_agreement(said, live, schedulers)),
    )
    return _with_roles(view)


def _with_roles(view: GangView) -> GangView:
    by_role: dict[tuple[str, PodShape], list[PodMember]] = {}
    for member in view.members:
        if member.phase is MemberPhase.WAITING and member.shape is not None:
            by_role.setdefault((member.task, member.shape), []).append(member)
    waiting = Counter({(task, place): len(found) for place, ((task, _), found) in enumerate(by_role.items())})
    least = _share_minimum(waiting, view)
    names = _name_roles([task for task, _ in by_role])
    roles = tuple(
        PodRole(names[place], shape, tuple(found), least[place])
        for place, ((_, shape), found) in enumerate(by_role.items())
    )
    return replace(view, roles=roles)


def _share_minimum(waiting: Counter[tuple[str, int]], view: GangView) -> Counter[int]:
    """Of how many members of each role a start needs: first what each task lacks, then whoever comes first."""
    here = Counter(
        member.task for member in view.members if member.phase in (MemberPhase.SEATED, MemberPhase.SUCCEEDED)
    )
    if view.said.match is MatchPolicy.ONLY_WAITING:
        here = Counter(member.task for member in view.members if member.phase is MemberPhase.SUCCEEDED)
    needed, least = view.outstanding, Counter[int]()
    for task, minimum in view.said.task_minimums:
        lacks = minimum - here[task]
        for (name, place), count in waiting.items():
            if name == task and lacks > 0:
                least[place] = min(count, lacks)
                lacks -= least[place]
    for (_, place), count in waiting.items():
        least[place] += max(0, min(count - least[place], needed - least.total()))
    return least


def _name_roles(tasks: list[str]) -> list[str]:
    # Roles of one task differ in shape only, and are told apart by a number.
    seen: Counter[str] = Counter()
    names = []
    for task in tasks:
        seen[task] += 1
        word = task or _SOLE_TASK
        names.append(word if seen[task] == 1 else f"{word}-{seen[task]}")
    return names


# ---- what members must agree on


def _check_agreement(said: Statement, live: Sequence[Pod], schedulers: list[str]) -> tuple[Remark, ...]:
    found: list[Remark] = []
    if len(schedulers) > 1:
        says = f"differs between members ({_list(schedulers)})"
        found.append(Invalid("spec.schedulerName", says, "name one scheduler for the whole gang"))
    priorities = sorted({pod.spec.priority or 0 for pod in live})
    if len(priorities) > 1:
        found.append(_tell_priorities(said, f"differs between members ({_list(priorities)})"))
    elif said.priority is not None and priorities and priorities[0] != said.priority:
        found.append(_tell_priorities(said, f"is {priorities[0]}, and the group's is {said.priority}"))
    policies = {pod.spec.preemption_policy or "PreemptLowerPriority" for pod in live}
    if said.preemption_policy:
        policies.add(said.preemption_policy)
    if len(policies) > 1:
        says = f"differs between members ({_list(sorted(policies))})"
        found.append(Invalid("spec.preemptionPolicy", says, "name one policy for the whole gang"))
    return tuple(found)


def _tell_priorities(said: Statement, says: str) -> Remark:
    if said.priority is not None and said.priority_decides:
        return Notice("spec.priority", f"{says}; the group's counts", "nothing has to be done")
    return Invalid("spec.priority", says, "give the whole gang one priority class")


def _find_priority(said: Statement, live: Sequence[Pod]) -> int:
    if said.priority is not None:
        return said.priority
    # They should agree; where they do not, the gang does not start, and the order does not matter.
    return min((pod.spec.priority or 0 for pod in live), default=0)


def _first_policy(live: Sequence[Pod]) -> str:
    return next((pod.spec.preemption_policy for pod in live if pod.spec.preemption_policy), "")


def find_kill_after(live: Sequence[Pod]) -> int | None:
    """After how long the last of these is gone for certain, in seconds."""
    lengths = [pod.spec.active_deadline_seconds for pod in live]
    known = [length for length in lengths if length is not None and length > 0]
    # Only if everybody has one is it certain when the last of them is gone.
    return max(known) if known and len(known) == len(lengths) else None


def _list(values: Iterable[object], show: Callable[[object], str] = quote) -> str:
    shown = [show(value) for value in values]
    return ", ".join(shown[:4]) + (", …" if len(shown) > 4 else "")
