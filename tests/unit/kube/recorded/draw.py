"""Draws the cases of `cases.jsonl`: python draw.py ANSWERS > cases.jsonl, with the program of answers.go.txt."""

from __future__ import annotations

import json
import random
import subprocess
import sys

RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi", "ephemeral-storage")
AMOUNTS = {"cpu": ("100m", "1", "1500m", "0.3", "2"), "nvidia.com/gpu": ("1", "2", "8")}
BYTES = ("1Gi", "100M", "128974848", "1.5Gi", "2Mi")
KEYS = ("a", "b", "c", "n")
VALUES = ("1", "2", "05", "x", "", "1.5")
SUFFIXES = (
    *("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"),
    "e3",
    "E3",
    "e-3",
    "e",
    "K",
    "e3k",
    "e+2",
)
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


class Cases:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def maybe(self, chance):
        return self.random.random() < chance

    def some(self, most, make, least=0):
        return [make() for _ in range(self.random.randint(least, most))]

    def quantity(self):
        pick = self.random
        number = pick.choice(
            [
                str(pick.randint(0, 10 ** pick.randint(1, 9))),
                f"{pick.randint(0, 999)}.{pick.randint(0, 99_999)}",
                f".{pick.randint(0, 99)}",
                "7.",
            ]
        )
        return {"Kind": "q", "Text": pick.choice(["", "", "", "-", "+"]) + number + pick.choice(SUFFIXES)}

    def amounts(self, chance=0.5):
        return {each: self.random.choice(AMOUNTS.get(each, BYTES)) for each in RESOURCES if self.maybe(chance)}

    def container(self, name, *, init=False):
        sidecar = {"restartPolicy": "Always"} if init and self.maybe(0.5) else {}
        return {"name": name, "resources": {"requests": self.amounts()}, **sidecar}

    def told(self, container):
        found = {"name": container["name"]}
        if self.maybe(0.6):
            found["allocatedResources"] = self.amounts()
        if self.maybe(0.6):
            found["resources"] = {"requests": self.amounts()} if self.maybe(0.8) else {}
        return found

    def requests(self):
        inits = [self.container(f"i{each}", init=True) for each in range(self.random.randint(0, 4))]
        mains = [self.container(f"c{each}") for each in range(self.random.randint(1, 3))]
        spec, status = {"containers": mains, "initContainers": inits}, {}
        if self.maybe(0.3):
            spec["overhead"] = self.amounts(0.3)
        if self.maybe(0.3):
            spec["resources"] = {
                "requests": {
                    each: value for each, value in self.amounts().items() if each in ("cpu", "memory", "hugepages-2Mi")
                }
            }
        if self.maybe(0.4):
            status = {"containerStatuses": [self.told(each) for each in mains if self.maybe(0.8)],
                      "initContainerStatuses": [self.told(each) for each in inits if self.maybe(0.8)]}  # fmt: skip
            if self.maybe(0.3):
                status["resources"] = {"requests": self.amounts()} if self.maybe(0.8) else {}
            if self.maybe(0.3):
                status["allocatedResources"] = self.amounts()
            if self.maybe(0.2):
                reason = self.random.choice(["Infeasible", "Deferred"])
                status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        return {"Kind": "r", "Pod": {"spec": spec, "status": status}}

    def expression(self, operators=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")):
        operator = self.random.choice(operators)
        found = {"key": self.random.choice(KEYS), "operator": operator}
        if operator in ("In", "NotIn"):
            found["values"] = self.some(3, lambda: self.random.choice(VALUES), 1)
        elif operator in ("Gt", "Lt"):
            found["values"] = [self.random.choice(("1", "2", "05"))]
        return found

    def term(self):
        found = {}
        if self.maybe(0.8):
            found["matchExpressions"] = self.some(3, self.expression)
        if self.maybe(0.3):
            field = {
                "key": "metadata.name",
                "operator": self.random.choice(["In", "NotIn"]),
                "values": [self.random.choice(["n0", "n1"])],
            }
            found["matchFields"] = [field]
        return found

    def affinity(self):
        spec, affinity = {}, {}
        if self.maybe(0.3):
            spec["nodeSelector"] = {self.random.choice(KEYS): self.random.choice(["1", "2", "x"])}
        if self.maybe(0.8):
            affinity[REQUIRED] = {"nodeSelectorTerms": self.some(3, self.term)}
        if self.maybe(0.4):
            affinity[PREFERRED] = self.some(
                3, lambda: {"weight": self.random.randint(1, 100), "preference": self.term()}, 1
            )
        if affinity:
            spec["affinity"] = {"nodeAffinity": affinity}
        labels = {key: self.random.choice(VALUES) for key in KEYS if self.maybe(0.6)}
        node = {"metadata": {"name": self.random.choice(["n0", "n1", "n2"]), "labels": labels}}
        return {"Kind": "n", "Pod": {"spec": spec}, "Node": node}

    def tolerations(self):
        pick = self.random.choice
        values = (*VALUES, "-3", "+7", "99999999999999999999")

        def taint():
            return {
                "key": pick(KEYS),
                "value": pick(values),
                "effect": pick(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
            }

        def toleration():
            found = {
                "key": pick((*KEYS, "")),
                "operator": pick(["", "Equal", "Exists", "Lt", "Gt", "Odd"]),
                "value": pick(values),
                "effect": pick(["", "NoSchedule", "NoExecute"]),
            }
            return {key: value for key, value in found.items() if value}

        return {
            "Kind": "t",
            "Pod": {"spec": {"tolerations": self.some(2, toleration)}},
            "Node": {"spec": {"taints": self.some(3, taint, 3)}},
        }

    def selector(self):
        found = {}
        if self.maybe(0.5):
            found["matchLabels"] = {self.random.choice(KEYS): self.random.choice(["1", "2", "x"])}
        if self.maybe(0.7):
            found["matchExpressions"] = self.some(3, lambda: self.expression(("In", "NotIn", "Exists", "DoesNotExist")))
        labels = {key: self.random.choice(VALUES) for key in KEYS if self.maybe(0.6)}
        return {"Kind": "l", "Selector": found if self.maybe(0.95) else None, "Labels": labels}


def draw(seed, count):
    cases = Cases(seed)
    kinds = (cases.quantity, cases.requests, cases.affinity, cases.tolerations, cases.selector)
    return [make() for make in kinds for _ in range(count)]


def answer(program, cases):
    text = "".join(json.dumps(case) + "\n" for case in cases)
    told = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in told.splitlines()]


def main():
    cases = draw(1, 120)
    for case, told in zip(cases, answer(sys.argv[1], cases), strict=True):
        sys.stdout.write(json.dumps({**case, "Answer": told}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
