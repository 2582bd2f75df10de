"""Every way a scenario can be wrong: the exact line people see, exit code 2, no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli import main

CLUSTER = "cluster: {nodes: [{name: 'n[0-3]', resources: {gpu: 2}}]}\n"
GANG = "name: A, members: 1, each: {gpu: 1}, duration: 60"


def gang(text: str) -> str:
    """A sound file but for one gang, which stands in line 3."""
    return f"{CLUSTER}gangs:\n  - {{{text}}}\n"


def beside(text: str) -> str:
    """A sound file with more parts from line 4 on."""
    return gang(GANG) + text


BAD = {
    # ---- the file as such
    "empty": ("", "is empty; a scenario has cluster and gangs"),
    "a-list": ("- 1\n", "line 1: must be a mapping (got a list)"),
    "not-yaml": ("gangs: [\n", "line 2: is not YAML: did not find expected node content"),
    "tab": ("gangs:\n\t- A\n", "line 2: is not YAML: found character that cannot start any token"),
    "two-documents": ("a: 1\n---\nb: 2\n", "line 2: is not YAML: but found another document"),
    "python-tag": ("gangs: !!python/object:os.system x\n", "line 1: is not YAML: could not determine a constructor"),
    "duplicate-key": (gang("name: A, name: B"), "line 3: the key name stands twice; the first is in line 3"),
    "alias-of-itself": ("gangs: &a [*a]\n", "line 1: an alias contains itself"),
    "no-cluster": ("gangs: []\n", "line 1: cluster is missing; write cluster: {nodes:"),
    "no-gangs": (CLUSTER, "line 1: gangs is missing; write gangs: [{name: A"),
    "zero-gangs": (CLUSTER + "gangs: []\n", "line 2: gangs must not be empty; there is nothing to simulate"),
    "unknown-part": (beside("queue: []\n"), "line 4: unknown key queue; did you mean queues?"),
    "unrelated-part": (beside("zebra: 1\n"), "line 4: unknown key zebra; valid: cluster, maintenance, reservations"),
    # ---- gangs
    "unknown-key": (gang(f"{GANG}, membrs: 2"), "line 3: gangs[0] 'A': unknown key membrs; did you mean members?"),
    "members-0": (gang("name: A, members: 0, each: {gpu: 1}, duration: 60"),
                  "line 3: gangs[0] 'A': members must be at least 1 (got 0)"),
    "members-negative": (gang("name: A, members: -1, each: {gpu: 1}, duration: 60"),
                         "gangs[0] 'A': members must be at least 1 (got -1)"),
    "members-huge": (gang("name: A, members: 1000000000, each: {gpu: 1}, duration: 60"),
                     "gangs[0] 'A': members must be at most 1,000,000 (got 1000000000)"),
    "members-word": (gang("name: A, members: four, each: {gpu: 1}, duration: 60"),
                     "gangs[0] 'A': members must be a whole number (got 'four')"),
    "members-half": (gang("name: A, members: 2.5, each: {gpu: 1}, duration: 60"),
                     "gangs[0] 'A': members must be a whole number (got 2.5)"),
    "members-true": (gang("name: A, members: true, each: {gpu: 1}, duration: 60"),
                     "gangs[0] 'A': members must be a whole number (got true)"),
    "min-over-max": (gang("name: A, members: {min: 8, max: 2}, each: {gpu: 1}, duration: 60"),
                     "gangs[0] 'A': members has min 8 above max 2; swap them"),
    "min-alone": (gang("name: A, members: {min: 8}, each: {gpu: 1}, duration: 60"),
                  "gangs[0] 'A': members.max is missing; write {min: 2, max: 8}, or a plain number"),
    "members-key": (gang("name: A, members: {mix: 8}, each: {gpu: 1}, duration: 60"),
                    "gangs[0] 'A': unknown key members.mix; did you mean min?"),
    "sizes-and-min": (gang("name: A, members: {min: 1, sizes: [1, 2]}, each: {gpu: 1}, duration: 60"),
                      "gangs[0] 'A': members must have either sizes or min, max and step, not both"),
    "sizes-empty": (gang("name: A, members: {sizes: []}, each: {gpu: 1}, duration: 60"),
                    "gangs[0] 'A': members.sizes must not be empty"),
    "sizes-twice": (gang("name: A, members: {sizes: [2, 2]}, each: {gpu: 1}, duration: 60"),
                    "gangs[0] 'A': members.sizes names a size twice"),
    "step-0": (gang("name: A, members: {min: 1, max: 3, step: 0}, each: {gpu: 1}, duration: 60"),
               "gangs[0] 'A': members.step must be at least 1 (got 0)"),
    "no-name": (gang("members: 1, each: {gpu: 1}, duration: 60"), "line 3: gangs[0]: name is missing; write name: A"),
    "twice": (gang(GANG) + f"  - {{{GANG}}}\n", "line 4: gangs[1] 'A': there is already a gang 'A'; names are unique"),
    "no-members": (gang("name: A, each: {gpu: 1}, duration: 60"), "gangs[0] 'A': members is missing"),
    "no-each": (gang("name: A, members: 1, duration: 60"), "gangs[0] 'A': each is missing; write each: {gpu: 1}"),
    "neither": (gang("name: A, duration: 60"), "gangs[0] 'A': needs members and each, or roles"),
    "both": (gang(f"{GANG}, roles: [{{name: w, members: 1, each: {{gpu: 1}}}}]"),
             "gangs[0] 'A': has both roles and members and each; sizes and shapes stand in the roles"),
    "roles-empty": (gang("name: A, roles: [], duration: 60"), "gangs[0] 'A': roles must not be empty"),
    "role-twice": (gang("name: A, duration: 60, roles: [{name: w, members: 1, each: {gpu: 1}}, {name: w, members: 1, each: {gpu: 1}}]"),
                   "gangs[0] 'A': roles[1] there is already a role 'w' in this gang"),
    "role-members": (gang("name: A, duration: 60, roles: [{name: w, members: 0, each: {gpu: 1}}]"),
                     "gangs[0] 'A': roles[0].members must be at least 1 (got 0)"),
    "a-device-and-a-half": (gang("name: A, members: 1, each: {gpu: 1.5}, duration: 60"),
                            "gangs[0] 'A': each.gpu above 1 must be whole (got 1.5); a share sits on a single device"),
    "negative-amount": (gang("name: A, members: 1, each: {gpu: -1}, duration: 60"),
                        "gangs[0] 'A': each.gpu must not be negative (got -1)"),
    "amount-nan": (gang("name: A, members: 1, each: {gpu: .nan}, duration: 60"),
                   "gangs[0] 'A': each.gpu must be an ordinary number (got nan)"),
    "amount-suffix": (gang("name: A, members: 1, each: {memory: 64GB}, duration: 60"),
                      "gangs[0] 'A': each.memory is no amount (got '64GB')"),
    "needs-nothing": (gang("name: A, members: 1, each: {gpu: 0}, duration: 60"),
                      "gangs[0] 'A': each must ask for something"),
    "each-number": (gang("name: A, members: 1, each: 1, duration: 60"), "gangs[0] 'A': each must be a mapping (got 1)"),
    "no-duration": (gang("name: A, members: 1, each: {gpu: 1}"),
                    "gangs[0] 'A': duration is missing; write duration: 1h, the true run time at the largest size"),
    "duration-0": (gang("name: A, members: 1, each: {gpu: 1}, duration: 0"),
                   "gangs[0] 'A': duration must be more than 0 (got 0)"),
    "walltime-0": (gang(f"{GANG}, walltime: 0s"), "gangs[0] 'A': walltime must be more than 0 (got '0s')"),
    "walltime-word": (gang(f"{GANG}, walltime: soon"), "gangs[0] 'A': walltime is no time (got 'soon'); write seconds"),
    "submit-negative": (gang(f"{GANG}, submit: -5"), "gangs[0] 'A': submit must not be negative (got -5)"),
    "submit-in-ages": (gang(f"{GANG}, submit: 99999999999999"), "gangs[0] 'A': submit is more than 100 years"),
    "priority-half": (gang(f"{GANG}, priority: 1.5"), "gangs[0] 'A': priority must be a whole number (got 1.5)"),
    "priority-word": (gang(f"{GANG}, priority: high"), "gangs[0] 'A': priority must be a whole number (got 'high')"),
    "preemptible-word": (gang(f"{GANG}, preemptible: maybe"), "gangs[0] 'A': preemptible must be true or false (got 'maybe')"),
    "unknown-queue": (gang(f"{GANG}, queue: research"), "gangs[0] 'A': queue names no queue of this file: 'research'; valid: default"),
    "root-queue": (gang(f"{GANG}, queue: root"), "gangs[0] 'A': queue must be a queue below root"),
    "unknown-level": (gang(f"{GANG}, topology: {{require: rack}}"),
                      "gangs[0] 'A': topology.require names no topology level of this file: 'rack'; valid: node"),
    "segment-0": (gang(f"{GANG}, topology: {{segment: {{size: 0, level: node}}}}"),
                  "gangs[0] 'A': topology.segment.size must be at least 1 (got 0)"),
    "segment-no-level": (gang(f"{GANG}, topology: {{segment: {{size: 8}}}}"),
                         "gangs[0] 'A': topology.segment.level is missing"),
    "select-empty": (gang(f"{GANG}, select: {{rack: []}}"), "gangs[0] 'A': select.rack must not be empty"),
    "after-unknown": (gang(f"{GANG}, after: [Z]"), "gangs[0] 'A': after names no gang of this file: 'Z'; valid: A"),
    "after-itself": (gang(f"{GANG}, after: [A]"), "gangs[0] 'A': after goes round in a circle: A → A"),
    "after-key": (gang(f"{GANG}, after: {{all: [A]}}"), "gangs[0] 'A': unknown key after.all; valid: any"),
    "after-circle": (
        CLUSTER + "gangs:\n" + "".join(
            f"  - {{name: {name}, members: 1, each: {{gpu: 1}}, duration: 60, after: [{other}]}}\n"
            for name, other in (("A", "B"), ("B", "C"), ("C", "A"))),
        "line 3: gangs[0] 'A': after goes round in a circle: A → B → C → A",
    ),
    "together-waits-for-itself": (
        gang(f"{GANG}, together: p, after: [B]") + "  - {name: B, members: 1, each: {gpu: 1}, duration: 60, together: p}\n",
        "gangs[0] 'A': together 'p' can never start: by after, it waits for itself (p → p)",
    ),
    "together-two-queues": (
        gang(f"{GANG}, together: p, queue: x") + "  - {name: B, members: 1, each: {gpu: 1}, duration: 60, together: p}\n"
        "queues: [{name: x}]\n",
        "line 4: gangs[1] 'B': together 'p' is in queue 'default', and 'A' in 'x'; they must share one queue",
    ),
    "together-too-many": (
        gang(f"{GANG}, together: {{word: p, gangs: 1}}") + "  - {name: B, members: 1, each: {gpu: 1}, duration: 60, together: p}\n",
        "line 4: gangs[1] 'B': together 'p' is said to have 1 gangs, and this is number 2",
    ),
    "snapshot-every": (gang(f"{GANG}, snapshot: {{stall: 1s}}"), "gangs[0] 'A': snapshot.every is missing"),
    "snapshot-every-0": (gang(f"{GANG}, snapshot: {{every: 0}}"), "gangs[0] 'A': snapshot.every must be more than 0 (got 0)"),
    "speedup-word": (gang(f"{GANG}, speedup: linaer"), "gangs[0] 'A': speedup is no curve (got 'linaer'); did you mean linear?"),
    "speedup-two": (gang(f"{GANG}, speedup: {{amdahl: 0.1, table: {{1: 1}}}}"),
                    "gangs[0] 'A': speedup needs exactly one of linear, amdahl, table (got amdahl and table)"),
    "amdahl-2": (gang(f"{GANG}, speedup: {{amdahl: 2}}"), "gangs[0] 'A': speedup.amdahl must be a fraction from 0 to 1 (got 2)"),
    "table-0": (gang(f"{GANG}, speedup: {{table: {{1: 0}}}}"), "gangs[0] 'A': speedup.table.1 must be a speed above 0 (got 0)"),
    "table-key": (gang(f"{GANG}, speedup: {{table: {{one: 1}}}}"), "gangs[0] 'A': speedup.table.one stands at 'one', which is no number of members"),
    "table-triple": (gang(f"{GANG}, speedup: {{table: [[1, 2, 3]]}}"), "gangs[0] 'A': speedup.table[0] must be a pair [members, speed]"),
    # ---- cluster
    "node-twice": ("cluster: {nodes: [{name: 'n[0-3]', resources: {gpu: 2}}, {name: n2, resources: {gpu: 2}}]}\ngangs: []\n",
                   "line 1: cluster.nodes[1] 'n2': there is already a node 'n2'; names are unique"),
    "node-no-name": ("cluster: {nodes: [{resources: {gpu: 2}}]}\ngangs: []\n", "cluster.nodes[0]: name is missing; write name: a0"),
    "node-half-device": ("cluster: {nodes: [{name: n, resources: {gpu: 1.5}}]}\ngangs: []\n",
                         "cluster.nodes[0] 'n': resources.gpu of a node must be whole (got 1.5)"),
    "no-nodes": ("cluster: {nodes: []}\ngangs: []\n", "line 1: cluster.nodes must not be empty"),
    "range-reversed": ("cluster: {nodes: [{name: 'n[3-0]', resources: {gpu: 1}}]}\ngangs: []\n",
                       "cluster.nodes[0] 'n[3-0]': name has a reversed range 3-0"),
    "range-huge": ("cluster: {nodes: [{name: 'n[0-999999]', resources: {gpu: 1}}]}\ngangs: []\n",
                   "name names more than 100,000 hosts"),
    "islands": ("cluster: {nodes: [{name: n, resources: {gpu: 2}, islands: [[0, 2]]}]}\ngangs: []\n",
                "cluster.nodes[0] 'n': islands[0][1] names device 2, and the node has 2 (0 to 1)"),
    "island-twice": ("cluster: {nodes: [{name: n, resources: {gpu: 2}, islands: [[0], [0]]}]}\ngangs: []\n",
                     "islands[1][0] names device 0 twice; a device is in one island"),
    "level-twice": ("cluster: {topology: [rack, rack], nodes: [{name: n, resources: {gpu: 2}}]}\ngangs: []\n",
                    "cluster.topology names the level rack twice"),
    "level-node": ("cluster: {topology: [node, rack], nodes: [{name: n, resources: {gpu: 2}}]}\ngangs: []\n",
                   "cluster.topology[0] node is always the innermost level; leave it out"),
    # ---- queues and users
    "queue-parent": (beside("queues: [{name: a, parent: b}]\n"), "line 4: queues[0] 'a': parent names no queue of this file: 'b'"),
    "queue-circle": (beside("queues: [{name: a, parent: b}, {name: b, parent: a}]\n"),
                     "queues[0] 'a': parent goes round in a circle: a → b → a"),
    "queue-twice": (beside("queues: [{name: a}, {name: a}]\n"), "queues[1] 'a': there is already a queue 'a'"),
    "queue-root": (beside("queues: [{name: root}]\n"), "queues[0] 'root': root is the top of the tree and always there"),
    "queue-weight": (beside("queues: [{name: a, weight: 0}]\n"), "queues[0] 'a': weight must be at least 1 (got 0)"),
    "queue-floor": (beside("queues: [{name: a, guarantee: {gpu: 4}, limit: {gpu: 2}}]\n"),
                    "queues[0] 'a': the guarantee of gpu is above the limit"),
    "queue-key": (beside("queues: [{name: a, garantee: {gpu: 4}}]\n"), "queues[0] 'a': unknown key garantee; did you mean guarantee?"),
    "user-limit": (beside("users: [{name: ada}]\n"), "users[0] 'ada': limit is missing; write limit: {gpu: 8}"),
    # ---- windows
    "window-node": (beside("maintenance: [{nodes: z9, at: 1h, for: 1h}]\n"),
                    "maintenance[0]: nodes names no node of this cluster: 'z9'"),
    "window-for-0": (beside("maintenance: [{nodes: n0, at: 1h, for: 0}]\n"), "maintenance[0]: for must be more than 0 (got 0)"),
    "window-at": (beside("maintenance: [{nodes: n0}]\n"), "maintenance[0]: at is missing; write at: 2h"),
    "reservation-nobody": (beside("reservations: [{name: r, nodes: n0, at: 1h, for: 1h}]\n"),
                           "reservations[0] 'r': needs users or queues"),
    "reservation-queue": (beside("reservations: [{name: r, nodes: n0, at: 1h, for: 1h, queues: [z]}]\n"),
                          "reservations[0] 'r': queues[0] names no queue of this file: 'z'"),
    # ---- events
    "event-node": (beside("events: [{at: 1, fail: z0}]\n"), "line 4: events[0]: fail names no node of this cluster: 'z0'"),
    "event-gang": (beside("events: [{at: 1, cancel: B}]\n"), "events[0]: cancel names no gang of this file: 'B'; valid: A"),
    "event-verbs": (beside("events: [{at: 1, fail: n0, repair: n1}]\n"), "events[0]: needs exactly one of fail, repair, cordon"),
    "event-no-verb": (beside("events: [{at: 1}]\n"), "(got none)"),
    "event-no-at": (beside("events: [{fail: n0}]\n"), "events[0]: at is missing; write at: 30m"),
    "event-by": (beside("events: [{at: 1, fail: n0, by: 2}]\n"), "events[0]: by belongs to drain only, not to fail"),
    "event-by-early": (beside("events: [{at: 1h, drain: n0, by: 30m}]\n"), "events[0]: by must be later than at (got '30m')"),
    "event-add-twice": (beside("events: [{at: 1, add: {name: n0, resources: {gpu: 1}}}]\n"),
                        "events[0]: add adds the node 'n0', which is there already; remove it first"),
    "event-resize-gang": (beside("events: [{at: 1, resize: {B: 2}}]\n"), "events[0]: resize names no gang of this file: 'B'"),
    "event-resize-0": (beside("events: [{at: 1, resize: {A: 0}}]\n"), "events[0]: resize.A must be at least 1 (got 0)"),
    # ---- the rest
    "until-0": (beside("until: 0\n"), "line 4: until must be more than 0 (got 0)"),
    "policy-unknown": (beside("policy: eazy\n"), "there is no policy 'eazy'; did you mean easy?"),
    "policy-list-option": (beside("policy: {name: easy, reservations: [1]}\n"), "policy.reservations must be a single value"),
    "policy-option": (beside("policy: {name: easy, reservashuns: 1}\n"), "reservashuns"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_the_line_people_see(name: str, tmp_path: Path):
    text, message = BAD[name]
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    done = CliRunner().invoke(main, ["sim", str(file)])
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stderr.startswith("phalanx: error: ")
    assert done.stderr.count("\n") == 1, "one line"
    assert not done.stdout


OTHER_FORMATS = {
    "bad.json": ('{"gangs": [}', "bad.json: line 1: is not JSON: Expecting value"),
    "twice.json": ('{"gangs": 1, "gangs": 2}', "twice.json: the key gangs stands twice in one object"),
    "nan.json": ('{"until": NaN}', "nan.json: cluster is missing"),
    "deep.json": ("[" * 100_000, "deep.json: "),
    "deep.yaml": ("[" * 100_000, "deep.yaml: "),
    "deep.toml": ("a = " + "[" * 100_000, "deep.toml: "),
    "digits.json": (
        '{"until": ' + "9" * 5000 + "}",
        "digits.json: is not usable JSON: a number of thousands of digits",
    ),
    "half.json": (
        '{"until": 1,\n"gangs": ["\\ud800"]}',
        "half.json: line 2: is not usable JSON: \\ud800 is half of a character",
    ),
    "digits.yaml": ("until: " + "9" * 5000 + "\n", "digits.yaml: line 1: a value that cannot be read: '999"),
    "date.yaml": ("until: 2024-99-99\n", "date.yaml: line 1: a value that cannot be read: '2024-99-99'"),
    "bad.toml": ("a = 1\ngangs = }\n", "bad.toml: line 2: is not TOML: "),
    "binary.yaml": (b"\xff\xfe\x00\xd8", "binary.yaml: is not UTF-8 text"),
    "control.yaml": ("gangs: \x00\n", "control.yaml: is not YAML"),
    "escape.yaml": ('"\\e[31mred": 1\n', "escape.yaml: line 1: unknown key ?[31mred"),
    "log.swf": ("1 2 3\n", "log.swf: a log does not say what it ran on; add --cluster NODESxSLOTS"),
}


@pytest.mark.parametrize("name", OTHER_FORMATS)
def test_other_formats_fail_in_one_line_too(name: str, tmp_path: Path):
    text, message = OTHER_FORMATS[name]
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = CliRunner().invoke(main, ["sim", str(file)])
    assert done.exit_code == 2, (done.output, done.exception)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


ARGUMENTS = {
    "missing": (["nowhere.yaml"], "nowhere.yaml: cannot be read: No such file or directory"),
    "folder": (["."], ".: cannot be read: Is a directory"),
    "cluster": (
        ["good.yaml", "--cluster", "lots"],
        "--cluster: 'lots' is no cluster; write nodes x gpus per node, as 16x8",
    ),
    "cluster-0": (["good.yaml", "--cluster", "0x8"], "--cluster: '0x8' is out of bounds"),
    "policy": (["good.yaml", "--policy", "easy,fifo"], "there is no policy 'fifo'; did you mean pod-fifo?"),
    "no-policy": (["good.yaml", "--policy", ","], "--policy names none"),
    "estimate": (["good.yaml", "--estimate", "actual"], "--estimate is about logs"),
    "log-missing": (
        ["nowhere.swf.gz", "--cluster", "1x100"],
        "nowhere.swf.gz: cannot be read: No such file or directory",
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(gang(GANG))
    arguments, message = ARGUMENTS[name]
    done = CliRunner().invoke(main, ["sim", *arguments])
    assert done.exit_code == 2, (done.output, done.exception)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_installed_command_exits_with_2_and_prints_no_traceback(tmp_path: Path):
    file = tmp_path / "bad.yaml"
    file.write_text(gang("name: A, members: 0, each: {gpu: 1}, duration: 60"))
    done = subprocess.run(
        [sys.executable, "-c", "from phalanx.cli import main; main()", "sim", str(file)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"phalanx: error: {file}: line 3: gangs[0] 'A': members must be at least 1 (got 0)\n"
