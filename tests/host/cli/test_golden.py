"""What people and programs read, exactly."""

import json

import pytest

from phalanx.cli.host import ps

TABLES = {
    "ps": """\
   ID  NAME                    STATE    GPUS  MEMBERS  TIME  INFO
    1  train                   running     4        4   20m  box: GPU 0-3
    4  go                      running     4        4   20m  box: GPU 4-7  [####......] 40% 0.5/s 2m left
10-13  sweep[0-3]              running     2        1   20m  2 running, 2 pending
    2  sft                     pending     2      2:8   41m  starts about 10:05 (Capacity)
    3  evil\\x1b[31m\\u202ename  failed      4        4   20m  exit 1
""",
    "ps -a --no-headers": """\
    1  train                   ada  running  4    4  20m  box: GPU 0-3
    4  go                      bob  running  4    4  20m  box: GPU 4-7  [####......] 40% 0.5/s 2m left
10-13  sweep[0-3]              ada  running  2    1  20m  2 running, 2 pending
    2  sft                     ada  pending  2  2:8  41m  starts about 10:05 (Capacity)
    3  evil\\x1b[31m\\u202ename  ada  failed   4    4  20m  exit 1
""",
    "ps -o wide": """\
ID  NAME                    USER  QUEUE    STATE    PRIORITY  GPUS  MEMBERS  SUBMITTED  TIME  ATTEMPT  EXIT_CODE  DEVICES                  REASON    INFO
 1  train                   ada   default  running         0     4        4  08:30:00    20m        1          -  GPU-0 GPU-1 GPU-2 GPU-3  -         box: GPU 0-3
 2  sft                     ada   default  pending         0     2      2:8  08:30:00    41m        0          -  -                        Capacity  starts about 10:05 (Capacity)
 3  evil\\x1b[31m\\u202ename  ada   default  failed          0     4        4  08:30:00    20m        1          1  -                        -         exit 1
 4  go                      bob   default  running         0     4        4  08:30:00    20m        1          -  GPU-0 GPU-1 GPU-2 GPU-3  -         box: GPU 4-7  [####......] 40% 0.5/s 2m left
10  sweep                   ada   default  running         0     1        1  08:30:00    20m        1          -  -                        -         box: GPU 0-3
11  sweep                   ada   default  running         0     1        1  08:30:00    20m        1          -  -                        -         box: GPU 0-3
12  sweep                   ada   default  pending         0     1        1  08:30:00    10m        1          -  -                        -         box: GPU 0-3
13  sweep                   ada   default  pending         0     1        1  08:30:00    10m        1          -  -                        -         box: GPU 0-3
""",
    "ps --columns id,state,eta": """\
   ID  STATE    ETA
    1  running  -
    4  running  -
10-13  running  -
    2  pending  about 10:05 (80%: 09:50 - 10:40)
    3  failed   -
""",
    "ps -o csv": """\
id,name,user,queue,state,members,members_min,members_max,placement,reason,eta,gpus,priority,submitted,started,ended,waited_s,ran_s,exit_code,attempt,array
1,train,ada,default,running,4,4,4,box:4,,,4.0,0,2026-11-16T08:30:00+00:00,2026-11-16T08:40:00+00:00,,600.0,1200.0,,1,
2,sft,ada,default,pending,0,2,8,,Capacity,2026-11-16T10:05:00+00:00,2.0,0,2026-11-16T08:30:00+00:00,,,2460.0,0.0,,0,
3,evil\\x1b[31m\\u202ename,ada,default,failed,4,4,4,,,,4.0,0,2026-11-16T08:30:00+00:00,2026-11-16T08:40:00+00:00,2026-11-16T08:50:00+00:00,600.0,1200.0,1,1,
4,go,bob,default,running,4,4,4,box:4,,,4.0,0,2026-11-16T08:30:00+00:00,2026-11-16T08:40:00+00:00,,600.0,1200.0,,1,
10,sweep,ada,default,running,1,1,1,,,,1.0,0,2026-11-16T08:30:00+00:00,2026-11-16T08:40:00+00:00,,600.0,1200.0,,1,sweep[0]
11,sweep,ada,default,running,1,1,1,,,,1.0,0,2026-11-16T08:30:00+00:00,2026-11-16T08:40:00+00:00,,600.0,1200.0,,1,sweep[1]
12,sweep,ada,default,pending,1,1,1,,,,1.0,0,2026-11-16T08:30:00+00:00,2026-11-16T08:40:00+00:00,,600.0,1200.0,,1,sweep[2]
13,sweep,ada,default,pending,1,1,1,,,,1.0,0,2026-11-16T08:30:00+00:00,2026-11-16T08:40:00+00:00,,600.0,1200.0,,1,sweep[3]
""",
    "why 214": """\
214 llama-sft  PENDING 41m  queue research  needs 16 GPUs (min 8) as 16 x 1

  BLOCKED BY  Fragmentation
    22 GPUs are free, but no place has 8: 6, 5, 4, 3, 2, 2
  ALSO        QueueLimit  research uses 40 of its 48
              Behind      2 gangs are ahead
  AHEAD       3 gangs, 32 GPUs  #198 alice 16 GPUs, #207 bob 8 GPUs, and 1 more
  PASSING     215 (b), 216 (c) will pass: shorter, and done before this job's reservation at 10:05 (fill: shortest)
              queue 'research' is not below its guarantee; 217 (y) of queue 'q', below its own, fills first

  STARTS      about 10:05 (80%: 09:50 - 10:40)   when #1 ends
  SOONER IF   you accept 8 GPUs now              phalanx resize 214 --min 8               -> in 30s
              topology "node" is only preferred  phalanx edit 214 --topology prefer:node
""",
    "why 1": """\
1 train  RUNNING 20m  queue default  needs 4 GPUs as 4 x 1

  SURPLUS     its date 18:00 needs 4 members; it has 2: 2 are coming
              nobody is before it

  DECIDED     08:40:00  bind    members 4, placement box:4
              08:55:10  shrink  members 2, for 2; gives 2 back: job 2's date needs 3
""",
    "why 3": """\
3 evil\\x1b[31m\\u202ename  FAILED 20m  queue default  needs 4 GPUs as 4 x 1

  BECAUSE     Failed
    rank 2 ended with exit code 1

  rank 2 failed first (exit code 1):
    | Traceback (most recent call last):
    | ValueError: \\x1b]0;owned\\x07bad
""",
    "show 1": """\
1 train  RUNNING  box: GPU 0-3
  user        ada
  queue       default, priority 0
  members     4, each gpu:1 memory:16Gi
  GPUs        4
  places      box:4
  time        2h
  kill after  2h30m, USR1 60 s before
  deadline    15:00:00
  begin       08:35:00
  after       7, 9, however they end
  restarts    3, 2 left
  preemptible yes, and waits again
  singleton   yes
  topology    prefer node
  command     python train.py --name 'a b'
  directory   /data/ada
  submitted   08:30:00
  waited      10m
  started     08:40:00
  ran         20m
  attempts    2
  goodput     83% of 1h20m GPU time (startup 8%, lost 8%)
  run dir     /state/runs/1.2

  RANK  ROLE    DEVICES   PID  ENDED
     0  member  GPU-0    4711  -
     1  member  GPU-1    4712  signal 9

  08:30:00  submit
  08:40:00  bind    members 4, placement box:4
""",
    "nodes": """\
box  gpu:3 cpu:64 memory:512Gi  free gpu:1 cpu:60 memory:256Gi  containment cgroup2
GPU  MODEL   MEMORY  STATE     JOB  RANK  USER
  0  H200   140.4Gi  busy        1     0  ada
  1  H200   140.4Gi  stranger    -     -  mallory (pid 99, 100)
  2  H200   140.4Gi  free        -     -  -
""",
    "queues": """\
QUEUE     PARENT  WEIGHT  GUARANTEE  LIMIT  USED   PENDING  RUNNING
root      -            1  -          -      gpu:6        0        0
research  root         2  gpu:4      gpu:8  gpu:6        3        2
""",
    "share": """\
You use 6 of the 4 GPUs that research is guaranteed; what is above may be taken back.

QUEUE     USED   GUARANTEE  LIMIT  WEIGHT  SHARE
research  gpu:6  gpu:4      gpu:8       2    75%
""",
    "report --by user,queue": """\
USER  QUEUE     JOBS  GPU_H  GOODPUT  STARTUP   LOST
ada   research    12  10.00    90.0%     5.0%   5.0%
bob   default      1   1.00    50.0%     0.0%  50.0%
in all 13 jobs, 11.00 GPU hours, goodput 86.4%
""",
    "report --by user,queue -o csv": """\
user,queue,jobs,gpu_h,goodput,productive_gpu_s,startup_gpu_s,snapshot_gpu_s,restore_gpu_s,resize_gpu_s,lost_gpu_s,idle_allocated_gpu_s
ada,research,12,10.0,0.9,32400.0,1800.0,0.0,0.0,0.0,1800.0,0.0
bob,default,1,1.0,0.5,1800.0,0.0,0.0,0.0,0.0,1800.0,0.0
""",
    "report eta -v": """\
42 estimates of jobs that have started since
  in the range that was given   81%   (80% would be honest)
  half of them off by at most   12s
  nine in ten off by at most    5m
  on average too late by        4s

JOB  MADE      EXPECTED  ACTUAL    ERROR_S  PREDICTED
  2  08:30:00  08:41:00  08:40:00       1m  yes
""",
    "gantt": """\
GPU 0 ▒1▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒█12███████████████│█████████████████··················
GPU 1 ··················█12███████████████│█████████████████░13░░░░░░░░░░░░░░░
      08:00                             09:00                            10:00
      ▒ ended   █ running   ░ expected   │ now

 1  train  ada  past      08:00 - 08:30
12  sft    bob  running   08:30 - 09:30
13  go     ada  forecast  09:30 - 10:00
""",
    "config show --origin": """\
KEY                 VALUE            ORIGIN
policy              goodput          default
price_per_gpu_hour  2.5              PHALANX_PRICE
queues              [{"name": "a"}]  /etc/phalanx/config.toml
""",
    "status": """\
up: phalanx 0.1.0, pid 77, for 1h02m
  socket     /state/phalanx.sock
  GPUs       8 fake GPUs: 2 free, 6 busy
  jobs       1 pending, 2 running
  policy     goodput, for one user, containment weak
""",
    "top": """\
1 of 3 GPUs busy, 5 jobs running, 3 waiting for 4 GPUs
GPU  MODEL  STATE     UTIL    USED   MEMORY  JOB  NAME   RANK  USER                   INFO
  0  H200   busy       97%  70.2Gi  140.4Gi    1  train     0  ada                    box: GPU 0-3
  1  H200   stranger     -       -  140.4Gi    -  -         -  mallory (pid 99, 100)
  2  H200   free        0%       0  140.4Gi    -  -         -  -
""",
    "submit -g 4 --time 2h -- sleep 5": """\
7 train  pending  4 ranks × 1 GPU  starts about 10:05 (80%: 09:50 - 10:40), when #1 ends
├─ phalanx why 7       why it waits, and when it starts
├─ phalanx logs -f 7   follow its output
└─ phalanx cancel 7    stop it
""",
    "submit -g 4 --dry-run -- sleep 5": """\
7 train  pending  4 ranks × 1 GPU  starts about 10:05 (80%: 09:50 - 10:40), when #1 ends
(dry run: nothing was submitted)
""",
    "cancel 2": "2 sft  pending\n",
    "hold 2": "2 sft  pending  held; phalanx release lets it start\n",
    "release 2": "2 sft  pending  released\n",
    "resize 2 4": "2 sft  pending  will start with 4 of 2:8 members\n",
    "edit 2 --priority 5 --time 30m": "2 sft  pending  changed: priority, walltime\n",
    "preempt --drill 2": "2 sft  pending  drill begun; watch it: phalanx events, phalanx logs -f 2\n",
    "retry 3": """\
8 train  running
├─ phalanx show 8      where it is
├─ phalanx logs -f 8   follow its output
└─ phalanx cancel 8    stop it
""",
}


@pytest.mark.parametrize("words", TABLES)
def test_tables(telling, phalanx, words):
    done = phalanx(*words.split())
    assert done.stderr == ""
    assert done.stdout == TABLES[words]
    assert done.exit_code == 0


def test_nothing_that_a_terminal_would_obey_is_ever_printed(telling, phalanx):
    for words in TABLES:
        for output in ("table", "wide", "json", "jsonl", "csv"):
            done = phalanx(*words.split(), *(["-o", output] if "-o" not in words and " -- " not in words else []))
            assert not {char for char in done.stdout if not char.isprintable()} - {"\n"}, (words, output)


def test_ps_json_is_a_list_of_rows_with_the_keys_of_the_contract(telling, phalanx, canned):
    found = json.loads(phalanx("ps", "-o", "json").stdout)
    assert found[0] == canned.row()
    wanted = "id name user queue state members members_min members_max placement reason eta"
    assert set(wanted.split()) <= set(found[0])
    assert len(found) == 8, "an array is collapsed for people only"
    lines = phalanx("ps", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == found


def test_other_json_is_what_the_daemon_said(telling, phalanx, canned):
    for words, told in {
        "why 214": canned.WHY_PENDING,
        "show 1": {**canned.detail(canned.row()), "env": None},
        "show 1 --env": canned.detail(canned.row()),
        "status": canned.STATUS,
        "nodes": canned.NODES,
        "queues": canned.QUEUES,
        "gantt": canned.GANTT,
        "share": canned.SHARE,
        "config show": canned.CONFIG["values"],
        "report eta": canned.REPORT_ETA,
        "cancel 2": canned.PENDING,
    }.items():
        assert json.loads(phalanx(*words.split(), "-o", "json").stdout) == told, words


def test_submit_json_has_the_keys_of_the_contract(telling, phalanx, canned):
    found = json.loads(phalanx("submit", "-o", "json", "-g", "1", "sleep", "1").stdout)
    assert found == {"id": 7, "name": "train", "state": "pending", "eta": canned.ETA, "reason": None, "warnings": []}


def test_a_job_that_was_only_just_accepted_is_looked_at_again(telling, phalanx, canned):
    telling.answer("POST", "/v1/jobs", {"id": 2, "name": "sft", "state": "pending", "eta": None, "reason": None})
    telling.answer("GET", "/v1/jobs/2", canned.detail(canned.PENDING))
    assert "starts about 10:05" in phalanx("submit", "-g", "1", "sleep", "1").stdout
    telling.answer("GET", "/v1/jobs/2", {"error": {"code": "internal", "message": "oh", "hint": ""}}, status=500)
    assert phalanx("submit", "-g", "1", "sleep", "1").stdout.startswith("2 sft  pending  1 rank × 1 GPU\n"), (
        "it is on disk all the same"
    )


def test_an_empty_list_says_so_beside_the_output(telling, phalanx):
    telling.answer("GET", "/v1/jobs", {"schema": "phalanx.jobs/1", "jobs": []})
    done = phalanx("ps")
    assert (done.stdout, done.stderr) == ("", "no jobs of yours\n"), "and nowhere any"
    assert json.loads(phalanx("ps", "-o", "json").stdout) == []
    assert phalanx("ps", "-o", "csv").stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("seen_with", "words", "said"),
    [
        ("finished", (), "no jobs of yours now; phalanx ps --finished shows those that have ended\n"),
        ("finished", ("-a",), "no jobs now; phalanx ps -a --finished shows those that have ended\n"),
        ("all", (), "no jobs of yours; phalanx ps -a shows everybody's\n"),
        ("all", ("--finished",), "no jobs of yours; phalanx ps -a shows everybody's\n"),
    ],
)
def test_an_empty_list_names_the_option_that_helps(monkeypatch, seen_with, words, said):
    rows = lambda daemon, query: [{}] if query.get(seen_with) and query.get("limit") else []  # noqa: E731
    monkeypatch.setattr(ps, "read_rows", rows)
    query = {"all": 1 if "-a" in words else None, "finished": 1 if "--finished" in words else None}
    assert ps.say_nothing(None, query) + "\n" == said


def test_filters_are_the_daemon_s_affair(telling, phalanx):
    phalanx("ps", "-a", "--state", "pending,failed", "--queue", "q", "--user", "ada", "--name", "a b&c", "--limit", "5")
    (request,) = telling.sent("GET", "/v1/jobs")
    assert request.query == "all=1&state=pending,failed&queue=q&user=ada&name=a%20b%26c&finished=1&limit=5"
    phalanx("ps")
    assert telling.sent("GET", "/v1/jobs")[-1].query == ""


def test_a_name_is_quoted_on_its_way(telling, phalanx):
    phalanx("why", "a/b ?ü")
    assert telling.requests[-1].path == "/v1/jobs/a%2Fb%20%3F%C3%BC/why"


def test_colours_only_on_a_terminal(telling, monkeypatch):
    from click.testing import CliRunner

    from phalanx.cli import main

    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" not in CliRunner().invoke(main, ["ps"]).stdout
    assert "\x1b[33mpending" in CliRunner().invoke(main, ["ps"], color=True).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in CliRunner().invoke(main, ["ps"], color=True).stdout


def test_near_starts_are_told_as_lengths(telling, phalanx, canned):
    eta = {"at": canned.at("09:00:40"), "low": canned.at("09:00:20"), "high": canned.at("09:03:00"), "predicted": True}
    telling.answer("GET", "/v1/jobs/214/why", {**canned.WHY_PENDING, "eta": eta})
    shown = phalanx("why", "214").stdout
    assert "  STARTS      in about 40s (80%: 20s - 3m), from earlier runs\n" in shown
    telling.answer("GET", "/v1/jobs/214/why", {**canned.WHY_PENDING, "eta": None})
    assert "nobody can say" in phalanx("why", "214").stdout


def test_ps_is_cut_to_the_terminal_and_to_nothing_else(canned):
    from click import unstyle

    from phalanx.cli.host.listing import choose_columns, make_table
    from phalanx.cli.host.ps import COLUMNS, collapse

    long = canned.row(
        name="a-run-with-a-very-long-name-indeed", info="starts in about 20s (80%: 10s - 3m) when #1 ends"
    )
    rows = collapse([long, canned.row(name="数据" * 10), *canned.ARRAY])
    columns = choose_columns(None, COLUMNS, ("id", "name", "state", "gpus", "members", "time", "info"))
    whole = make_table(rows, columns)
    assert max(map(len, whole)) > 110
    from phalanx.cli.host.text import width

    for there in (100, 80, 60):
        lines = [unstyle(line) for line in make_table(rows, columns, columns_there=there)]
        assert max(map(width, lines)) <= there, (there, lines)
        assert lines[1].split()[0] == "1"
        assert "…" in lines[1]
    assert make_table(rows, columns, columns_there=400) == whole


def test_two_arrays_of_one_name_are_two_lines_that_verbs_take_back(canned):
    from phalanx.cli.host.ps import collapse

    first = [{**row, "array_key": "0/a"} for row in canned.ARRAY]
    second = [
        {**row, "id": row["id"] + 10, "array_key": "0/b", "array": f"sweep[{2 * at}]"}
        for at, row in enumerate(canned.ARRAY)
    ]
    shown = [(row["id"], row["name"]) for row in collapse([*first, *second])]
    assert shown == [("10-13", "sweep[0-3]"), ("20-23", "sweep[0,2,4,6]")]


def test_resize_says_what_comes_of_it(telling, phalanx, canned):
    elastic = {"members_min": 2, "members_max": 8, "state": "running"}
    for members, said in ((8, "shrinks from 8 to 4 members; phalanx why 2"), (4, "has 4 members, and keeps them")):
        telling.answer("POST", "/v1/jobs/2/resize", canned.row(id=2, name="el2", members=members, **elastic))
        assert phalanx("resize", "2", "4").stdout == f"2 el2  running  {said}\n"


def test_what_means_several_jobs_is_done_to_each(telling, phalanx, canned):
    several = {"code": "ambiguous", "message": "'sweep' means 2 jobs: 1-3", "hint": "x", "details": {"several": [1, 3]}}
    for verb in ("", "/why"):
        telling.answer("GET", f"/v1/jobs/sweep{verb}", {"error": several}, status=409)
    for verb in ("show", "why"):
        shown = phalanx(verb, "sweep").stdout
        assert shown == phalanx(verb, "1").stdout + "\n" + phalanx(verb, "3").stdout
        assert [
            each.get("id") or each["job"]["id"] for each in json.loads(phalanx(verb, "sweep", "-o", "json").stdout)
        ] == [1, 3]
    telling.answer("POST", "/v1/jobs/sweep/resize", {"error": several}, status=409)
    telling.answer("POST", "/v1/jobs/1/resize", canned.PENDING)
    telling.answer("POST", "/v1/jobs/3/resize", canned.PENDING)
    assert phalanx("resize", "sweep", "4").stdout.count("will start with 4") == 2


def test_a_submit_that_was_cancelled_at_once_ends_with_1_and_hints_that_lead_somewhere(telling, phalanx, canned):
    reason = {"code": "DependencyFailed", "message": "cancelled, since 1 (prep), which it waited for, failed"}
    telling.answer("POST", "/v1/jobs", {"id": 2, "name": "sft", "state": "pending", "eta": None, "reason": None})
    telling.answer("GET", "/v1/jobs/2", canned.detail(canned.row(id=2, state="cancelled", reason=reason)))
    done = phalanx("submit", "-g", "1", "--after", "1", "sleep", "1")
    assert done.exit_code == 1
    assert "cancelled, since 1 (prep), which it waited for, failed" in done.stdout
    assert "phalanx retry 2" in done.stdout
    assert "logs" not in done.stdout
