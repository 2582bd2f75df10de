"""Settings: which place wins, what they come to, and what a mistake looks like."""

from __future__ import annotations

import os
import re
import struct
import threading
from collections import namedtuple

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.host import settings as settings_module
from phalanx.frontends.host.settings import KEYS, Settings, load_settings
from phalanx.model.queue import Queue, UserLimit


@pytest.fixture
def places(tmp_path):
    """A user, a project, a state directory and a system, all empty so far."""

    class Places:
        state = tmp_path / "state"
        project = tmp_path / "project" / "phalanx.toml"
        user = tmp_path / "config" / "phalanx" / "config.toml"
        system = tmp_path / "etc" / "config.toml"
        own = state / "config.toml"

        def write(self, where, text):
            path = getattr(self, where)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return path

        def load(self, env=None, flags=None, **more):
            return load_settings(
                self.state,
                flags=flags or {},
                env={"XDG_CONFIG_HOME": str(tmp_path / "config"), **(env or {})},
                cwd=tmp_path / "project",
                system_file=self.system,
                **more,
            )

    return Places()


NOBODY = 0xFFFFFFFF


# ---- which place wins


def test_nothing_said_means_the_defaults(places):
    found = places.load()
    assert (found.policy, found.max_queued_per_user, found.log_cap_bytes) == ("goodput", 10_000, 64 << 20)
    assert found.queues == (Queue("default"),)
    assert set(found.origins.values()) == {"default"}
    assert found.warnings == ()


ORDER = ["system", "user", "own", "project"]


@pytest.mark.parametrize("strongest", range(6))
def test_the_strongest_place_wins_and_is_named(places, strongest):
    env, flags, origin = {}, {}, ""
    for number, where in enumerate(ORDER[: strongest + 1]):
        origin = str(places.write(where, f"log_keep = {number}"))
    if strongest >= 4:
        env, origin = {"PHALANX_LOG_KEEP": "4"}, "environment PHALANX_LOG_KEEP"
    if strongest >= 5:
        flags, origin = {"log_keep": 5}, "flag --log-keep"
    found = places.load(env, flags)
    assert (found.log_keep, found.origins["log_keep"]) == (strongest, origin)


def test_places_are_laid_over_each_other_key_by_key(places):
    places.write("system", "log_keep = 7\nretention_days = 90\n[[queues]]\nname = 'a'\n")
    places.write("user", "retention_days = 5\n[[queues]]\nname = 'b'\n")
    found = places.load()
    assert (found.log_keep, found.retention_days) == (7, 5)
    assert [queue.name for queue in found.queues] == ["b", "default"]  # a list is taken whole


def test_the_systems_daemon_reads_the_systems_file_only(places):
    places.write("system", "log_keep = 1")
    for where in ("user", "own", "project"):
        places.write(where, "log_keep = 9")
    assert places.load(system=True).log_keep == 1


def test_one_file_can_stand_for_all(places, tmp_path):
    places.write("user", "log_keep = 9")
    (tmp_path / "only.toml").write_text("retention_days = 3")
    found = places.load({"PHALANX_CONFIG": str(tmp_path / "only.toml")})
    assert (found.log_keep, found.retention_days) == (1, 3)
    assert places.load({"PHALANX_CONFIG": "none"}).log_keep == 1
    with pytest.raises(BadInput, match="no such file"):
        places.load({"PHALANX_CONFIG": str(tmp_path / "missing.toml")})


def test_a_flag_that_was_not_given_says_nothing(places):
    assert places.load(flags={"policy": None, "log_keep": 2}).origins["policy"] == "default"


def test_a_stronger_place_can_take_something_back(places):
    places.write(
        "system", 'default_walltime = "2h"\nmax_running_per_user = 3\ntcp = "127.0.0.1:8470"\nadmin_group = "wheel"'
    )
    places.write("user", 'default_walltime = "none"\nmax_running_per_user = "none"\ntcp = "none"\nadmin_group = "none"')
    found = places.load()
    assert (found.default_walltime_us, found.max_running_per_user, found.tcp, found.admin_group) == (None,) * 4


# ---- what they come to


FULL = """
policy = {name = "easy", reservations = 2, half_life = "2h"}
max_queued_per_user = 500
max_running_per_user = 20
priority_ceiling = 10
log_cap_bytes = "16Mi"
log_keep = 3
default_walltime = "4h"
kill_grace_s = "30s"
notice_s = 45
resize_s = "2m"
pids_max = 4096
retention_days = 14
admin_group = "gpu-admins"
gpu_hour_price = 2.5
tcp = "[::1]:8470"
reserve = {cpu = 2, memory = "8Gi"}
display_processes = ["Xorg"]
small_use_bytes = "256Mi"

[[queues]]
name = "research"
weight = 2
guarantee = {gpu = 4}
limit = {gpu = 6}
priority_ceiling = 5

[[queues]]
name = "default"

[[users]]
name = "ada"
limit = {gpu = 4}
max_queued = 50

[[users]]
name = "root"
priority_ceiling = 100
max_running = 0
"""


def test_everything_can_be_said(places):
    places.write("system", FULL)
    found = places.load()
    policy = found.make_policy()
    assert (policy.name, policy.reservations, policy.half_life_us) == ("easy", 2, 7_200_000_000)
    assert found.queues == (
        Queue("research", weight=2, guarantee={"gpu": 4000}, limit={"gpu": 6000}),
        Queue("default"),
    )
    assert found.users == (UserLimit("ada", {"gpu": 4000}),)
    assert (found.log_cap_bytes, found.log_keep) == (16 << 20, 3)
    assert (found.default_walltime_us, found.kill_grace_s) == (4 * 3_600_000_000, 30.0)
    assert (found.notice_s, found.resize_s, found.pids_max) == (45.0, 120.0, 4096)
    assert (found.retention_days, found.admin_group, found.gpu_hour_price) == (14, "gpu-admins", 2.5)
    assert found.tcp == ("::1", 8470)
    assert found.reserve == {"cpu": 2000, "memory": 8 << 30}
    assert (found.display_processes, found.small_use_bytes) == ({"Xorg"}, 256 << 20)
    assert set(found.origins.values()) == {str(places.system)}


def test_bounds_of_a_user_go_before_those_of_everybody_and_a_queue_bounds_all(places):
    places.write("system", FULL)
    found = places.load()
    assert (found.queued_max("ada"), found.queued_max("bob")) == (50, 500)
    assert (found.running_max("root"), found.running_max("bob")) == (0, 20)
    assert found.priority_max("bob", "default") == 10
    assert found.priority_max("root", "default") == 100
    assert found.priority_max("root", "research") == 5
    assert Settings().priority_max("ada", "default") is None


def test_the_environment_is_read_as_toml_where_that_makes_sense(places):
    found = places.load(
        {
            "PHALANX_RESERVE": '{cpu = 1, memory = "1Gi"}',
            "PHALANX_TCP": "127.0.0.1:99",
            "PHALANX_DEFAULT_WALLTIME": "90m",
            "PHALANX_POLICY": "fair",
            "PHALANX_ADMIN_GROUP": "1000",
            "PHALANX_LOG_CAP_BYTES": "1Mi",
            "PHALANX_LOG_KEEP": "",  # said to be nothing
        }
    )
    assert found.reserve == {"cpu": 1000, "memory": 1 << 30}
    assert (found.tcp, found.default_walltime_us, found.policy) == (("127.0.0.1", 99), 5_400_000_000, "fair")
    assert (found.admin_group, found.log_cap_bytes, found.log_keep) == ("1000", 1 << 20, 1)


def test_a_variable_speaks_of_its_own_key_only(places):
    with pytest.raises(BadInput, match="log_keep must be a whole number"):
        places.load({"PHALANX_LOG_KEEP": "1\nretention_days = 2"})


def test_a_policy_of_ones_own_is_found_beside_the_file_that_names_it(places):
    mine = places.user.parent / "mine.py"
    places.write("user", 'policy = "mine.py:MINE"')
    mine.write_text(
        "from dataclasses import replace\nfrom phalanx.policy import POLICIES\n"
        "MINE = replace(POLICIES['easy'], name='mine', reservations=7)\n"
    )
    found = places.load()
    assert found.policy == f"{mine}:MINE"
    assert found.make_policy().reservations == 7


def test_every_key_is_shown_with_its_value_and_origin(places):
    places.write(
        "user", 'log_keep = 4\ndefault_walltime = "2h"\nreserve = {cpu = 1}\n[[queues]]\nname = "a"\nlimit = {gpu = 2}'
    )
    rows = {row["key"]: row for row in places.load().table()}
    assert list(rows) == list(KEYS)
    assert rows["log_keep"] == {"key": "log_keep", "value": 4, "origin": str(places.user)}
    assert rows["default_walltime"]["value"] == "2h"
    assert rows["queues"]["value"] == [{"name": "a", "limit": {"gpu": 2}}]
    assert rows["retention_days"] == {"key": "retention_days", "value": 30, "origin": "default"}
    import json

    json.dumps(list(rows.values()))


# ---- what is not trusted


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to somebody else needs root")
def test_a_file_of_somebody_else_in_the_current_folder_does_not_count(places):
    path = places.write("project", 'policy = "evil.py:RUN_ME"')
    os.chown(path, 12345, 12345)
    found = places.load()
    assert found.policy == "goodput"
    assert found.warnings == (f"{path}: belongs to user 12345, not to you; its settings do not count",)


def test_a_file_that_everybody_can_write_does_not_count(places):
    path = places.write("project", "log_keep = 9")
    path.chmod(0o666)
    found = places.load()
    assert found.log_keep == 1
    assert "can be written by everybody" in found.warnings[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="a stranger's files are made by root")
def test_a_strangers_file_that_is_put_in_place_while_it_is_looked_at_never_counts(places):
    """In a folder in which others may rename, a file that is mine when it is looked at is theirs when it is opened."""
    path = places.write("project", "log_keep = 2")
    theirs, mine, done = path.with_name("theirs"), path.with_name("mine"), threading.Event()

    def swap():
        while not done.is_set():
            for draft, uid, text in ((theirs, 12345, "log_keep = 99"), (mine, os.geteuid(), "log_keep = 2")):
                draft.write_text(text, encoding="utf-8")
                os.chown(draft, uid, uid)
                draft.replace(path)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        assert {places.load().log_keep for _ in range(600)} <= {1, 2}
    finally:
        done.set()
        swapper.join()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.parent.chmod(0o777), "lies in a folder in which everybody could put another in its place"),
        (lambda path: os.chown(path.parent, 12345, -1), "lies in a folder of user 12345"),
        (lambda path: path.replace(path.with_name("x")) and path.symlink_to(path.with_name("x")), "is a link"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is no plain file"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="a stranger's files are made by root")
def test_a_file_that_others_could_put_in_place_does_not_count(places, spoil, words):
    path = places.write("project", "log_keep = 9")
    spoil(path)
    try:
        found = places.load()
    finally:
        path.parent.chmod(0o755)
    assert found.log_keep == 1
    assert found.warnings
    assert words in found.warnings[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="a stranger's files are made by root")
def test_a_daemon_for_everybody_refuses_a_system_file_that_others_can_write(places):
    path = places.write("system", "log_keep = 9")
    assert places.load(system=True).log_keep == 9
    os.chown(path, 12345, 12345)
    with pytest.raises(BadInput, match="belongs to user 12345, not to you; give it to root: chown root"):
        places.load(system=True)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.chmod(0o666), "can be written by everybody; chmod go-w"),
        (lambda path: path.parent.chmod(0o777), "lies in a folder in which everybody"),
        (lambda path: os.chown(path, 12345, -1), "belongs to user 12345, not to you; give it to root: chown root"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is no plain file"),
        (lambda path: (path.unlink(), path.symlink_to("/dev/null")), "is no plain file"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="a stranger's files are made by root")
def test_a_daemon_for_everybody_refuses_a_named_file_that_others_can_write(places, spoil, words):
    """Whoever names a file means it, for a daemon of their own; this one runs for all the others."""
    path = places.write("own", "log_keep = 9")
    named = {"PHALANX_CONFIG": str(path)}
    assert places.load(named, system=True).log_keep == 9
    spoil(path)
    with pytest.raises(BadInput, match=words):
        places.load(named, system=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="a stranger's files are made by root")
def test_whoever_names_a_file_for_a_daemon_of_their_own_means_that_file(places):
    path = places.write("own", "log_keep = 9")
    os.chown(path, 12345, 12345)
    assert places.load({"PHALANX_CONFIG": str(path)}).log_keep == 9


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to a group of others needs root")
@pytest.mark.parametrize("what", ["file", "folder", "list"])
def test_what_a_group_of_others_can_write_counts_for_nobody(places, what):
    path = places.write("system", "log_keep = 9")
    shared = path.parent if what == "folder" else path
    if what == "list":
        # Version 2: owner, user 12345, group, mask, others, with what each may do.
        entries = ((1, 6, NOBODY), (2, 6, 12345), (4, 4, NOBODY), (16, 6, NOBODY), (32, 4, NOBODY))
        try:
            data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
            os.setxattr(path, "system.posix_acl_access", data)
        except OSError:
            pytest.skip("no lists of who may do what here")
    else:
        os.chown(shared, 0, 1)
        shared.chmod(0o775)
    with pytest.raises(BadInput, match=f"group.*chmod g-w {shared}"):
        places.load(system=True)
    assert places.load().log_keep == 1
    if what == "list":
        os.removexattr(path, "system.posix_acl_access")
    shared.chmod(0o755)
    assert places.load(system=True).log_keep == 9


@pytest.mark.parametrize(
    ("members", "others", "shared"),
    [
        ([], {}, False),
        (["me"], {}, False),
        (["me", "other"], {}, True),
        ([], {"other": 700}, True),
        ([], {"other": 701}, False),
    ],
)
def test_the_group_that_is_ones_own_is_nobody_else(places, monkeypatch, members, others, shared):
    """Where everybody has a group of their own, a umask of 002 is usual."""
    path = places.write("user", "log_keep = 9")
    path.chmod(0o664)
    if os.geteuid() != 0:
        pytest.skip("giving a file to a group needs root")
    os.chown(path, 0, 700)
    entry = namedtuple("entry", "pw_name pw_uid pw_gid")
    people = [entry("me", 0, 700), *(entry(name, 4000, gid) for name, gid in others.items())]
    monkeypatch.setattr("pwd.getpwuid", lambda uid: people[0])
    monkeypatch.setattr("pwd.getpwall", lambda: people)
    monkeypatch.setattr("grp.getgrgid", lambda gid: namedtuple("group", "gr_name gr_mem")("me", members))
    found = places.load()
    assert found.log_keep == (1 if shared else 9)
    assert bool(found.warnings) == shared


def test_a_link_of_ones_own_is_followed_and_what_it_leads_to_looked_at(places, tmp_path):
    """Many keep their settings elsewhere and link them; whoever may write there writes them."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text("log_keep = 9")
    places.user.parent.mkdir(parents=True)
    places.user.symlink_to(os.path.relpath(elsewhere / "config.toml", places.user.parent))
    assert places.load().log_keep == 9
    elsewhere.chmod(0o777)
    found = places.load()
    assert found.log_keep == 1
    assert f"everybody could put another in its place (chmod go-w {elsewhere})" in found.warnings[0]
    elsewhere.chmod(0o755)
    places.user.unlink()
    places.user.symlink_to(places.user)
    assert "link that never ends" in places.load().warnings[0]


MINE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from dataclasses import replace
from phalanx.policy import POLICIES
MINE = replace(POLICIES["easy"], name="mine", reservations=7)
"""


@pytest.fixture
def policy(tmp_path):
    """A policy in a folder of its own, which tells when it was run."""
    path = tmp_path / "policies" / "deep" / "mine.py"
    path.parent.mkdir(parents=True)
    path.write_text(MINE)
    return path


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.chmod(0o666), "can be written by everybody; chmod go-w"),
        (lambda path: path.parent.chmod(0o777), "lies in a folder in which everybody"),
        (lambda path: path.parent.parent.chmod(0o777), "lies in a folder in which everybody"),
        (lambda path: os.chown(path, 2, 2), "belongs to user 2"),
        (lambda path: os.chown(path.parent.parent, 2, 2), "lies in a folder of user 2"),
        (lambda path: (os.chown(path, 0, 1), path.chmod(0o664)), "can be written by its group"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "no policy file"),
    ],
)
@pytest.mark.parametrize("place", ["system", "user", "flag"])
@pytest.mark.skipif(os.geteuid() != 0, reason="a stranger's files are made by root")
def test_a_policy_that_others_could_have_written_is_not_run(places, policy, spoil, words, place):
    if place != "flag":
        places.write(place, f'policy = "{policy}:MINE"')
    spoil(policy)
    flags = {"policy": f"{policy}:MINE"} if place == "flag" else {}
    with pytest.raises(BadInput, match=words):
        places.load(flags=flags, system=place != "user")
    assert not (policy.parent / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="a stranger's files are made by root")
def test_whoever_types_the_name_of_a_policy_means_that_file(places, policy):
    os.chown(policy, 12345, 12345)
    assert places.load(flags={"policy": f"{policy}:MINE"}).make_policy().reservations == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="a stranger's files are made by root")
def test_a_policy_that_is_spoilt_after_it_was_looked_at_is_not_run(places, policy):
    places.write("system", f'policy = "{policy}:MINE"')
    found = places.load(system=True)
    policy.write_text("raise SystemExit(1)")
    os.chown(policy, 12345, 12345)
    with pytest.raises(BadInput, match="is not run"):
        found.make_policy()


# ---- mistakes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log_kep = 1", "unknown key log_kep; did you mean log_keep?"),
        ("zzz = 1", "unknown key zzz; valid: policy, queues"),
        ("log_keep = 'many'", "log_keep must be a whole number (got 'many')"),
        ("log_keep = -1", "log_keep must be at least 0 (got -1)"),
        ("max_queued_per_user = 0", "max_queued_per_user must be at least 1 (got 0)"),
        ("log_cap_bytes = 10", "log_cap_bytes must be at least 65,536 bytes (got 10)"),
        ("log_cap_bytes = '64MB'", "log_cap_bytes is no amount"),
        ("default_walltime = 'long'", "default_walltime is no time"),
        ("kill_grace_s = '2d'", "kill_grace_s must be at most a day (got '2d')"),
        ("policy = 'godput'", "policy names no policy: 'godput'; did you mean goodput?"),
        ("policy = {name = 'easy', reservation = 1}", "policy cannot be used: policy 'easy' has no option 'reservation'"),
        ("policy = {name = 'easy', reservations = [1]}", "policy.reservations must be a single value"),
        ("policy = 'gone.py:X'", "policy cannot be used: there is no policy file"),
        ("tcp = '0.0.0.0:80'", "tcp must stay on this machine: 127.0.0.1, ::1 or localhost (got '0.0.0.0')"),
        ("tcp = 'localhost'", "tcp must be an address and a port"),
        ("tcp = 'localhost:99999'", "tcp must be an address and a port"),
        ("gpu_hour_price = -1", "gpu_hour_price must not be negative (got -1)"),
        ("reserve = {gpu = 1}", "reserve.gpu cannot be kept for the system"),
        ("display_processes = 'Xorg'", "display_processes must be a list"),
        ("[[queues]]\nname = 'a'\nparent = 'b'", "parent names no queue"),
        ("[[queues]]\nname = 'a'\nwieght = 2", "queues[0] 'a': unknown key wieght; did you mean weight?"),
        ("[[queues]]\nname = 'a'\nlog_keep = 2", "queues[0] 'a': log_keep belongs to the whole file; write it above the first [[queues]]"),
        ("[[queues]]\nname = 'a'\npriority_ceiling = 'x'", "queues[0] 'a': priority_ceiling must be a whole number"),
        ("[[queues]]\nweight = 2", "queues[0]: name is missing"),
        ("[queues]\nname = 'a'", "queues must be a list"),
        ("[[users]]\nname = 'ada'\n[[users]]\nname = 'ada'", "already a user 'ada'"),
        ("[[users]]\nname = 'ada'\nmax_queued = -2", "users[0] 'ada': max_queued must be at least 0"),
        ("[[users]]\nmax_queued = 2", "users[0]: name is missing"),
        ("a = [", "is not TOML"),
        ("log_keep = 1\nlog_keep = 2", "is not TOML: Cannot overwrite a value"),
    ],
)  # fmt: skip
def test_a_mistake_names_file_key_and_what_is_allowed(places, text, words):
    path = places.write("user", text)
    with pytest.raises(BadInput) as told:
        places.load()
    assert str(told.value).startswith(f"{path}: ")
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_mistakes_in_other_places_name_the_place(places):
    with pytest.raises(BadInput, match=re.escape("environment PHALANX_LOG_KEEP: log_keep must be a whole number")):
        places.load({"PHALANX_LOG_KEEP": "lots"})
    with pytest.raises(BadInput, match=re.escape("flag --tcp: tcp must be an address")):
        places.load(flags={"tcp": "nowhere"})
    with pytest.raises(BadInput, match="flag --nonsense: unknown key nonsense"):
        places.load(flags={"nonsense": 1})


def test_a_variable_with_a_slip_is_pointed_out_and_others_are_not(places):
    found = places.load({"PHALANX_LOG_KEP": "1", "PHALANX_HOME": "/x", "PHALANX_JOB": "3", "PHALANX_OWN_THING": "1"})
    assert found.warnings == ("environment: PHALANX_LOG_KEP means nothing; did you mean PHALANX_LOG_KEEP?",)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * ((1 << 20) + 1)])
def test_what_is_no_text_or_far_too_long_is_refused(places, content):
    places.write("user", "")
    places.user.write_bytes(content)
    with pytest.raises(BadInput, match=re.escape(str(places.user))):
        places.load()


def test_a_folder_in_place_of_a_file_is_refused(places):
    places.user.mkdir(parents=True)
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        places.load()


def test_every_key_has_a_default_that_can_be_shown():
    for key in KEYS:
        settings_module._plain_default(key)
