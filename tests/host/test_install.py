"""The daemon as a service: what is written, what is run, and when it is refused."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.frontends.host.install import (
    CannotInstall,
    Here,
    apply_installation,
    plan_install,
    plan_uninstall,
    run_command,
    write_system_unit,
    write_user_unit,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only what root owns is trusted")


@pytest.fixture
def here(tmp_path):
    """A machine with systemd, seen by root unless a test says otherwise."""
    root = tmp_path / "root"
    (root / "run/systemd/system").mkdir(parents=True)
    program = tmp_path / "opt" / "python"
    program.parent.mkdir()
    program.touch()

    def build(**changes):
        defaults = {
            "state_dir": tmp_path / "state",
            "env": {"XDG_CONFIG_HOME": str(tmp_path / "config")},
            "uid": 0,
            "root": root,
            "python": program,
            "package": program.parent,
        }
        return Here(**(defaults | changes))

    build.tmp_path = tmp_path
    return build


def parse(text: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str
    unit.read_string(text)
    return unit


def test_the_systems_unit_says_what_jobs_depend_on():
    service = parse(write_system_unit("/opt/phalanx/bin/python"))["Service"]
    assert service["ExecStart"] == (
        "/opt/phalanx/bin/python -I -m phalanx.frontends.host --system --state /var/lib/phalanx --foreground"
    )
    expected = {
        "KillMode": "process",  # else jobs die with the daemon
        "Restart": "always",
        "OOMScoreAdjust": "-500",
        "Delegate": "yes",
        "DelegateSubgroup": "daemon",
        "StateDirectory": "phalanx",
        "StateDirectoryMode": "0711",
        "RuntimeDirectory": "phalanx",
        "TasksMax": "infinity",
    }
    assert {key: service[key] for key in expected} == expected


def test_the_users_unit_keeps_jobs_alive_too():
    unit = parse(write_user_unit("/venv/bin/python", Path("/var/state")))
    assert unit["Service"]["KillMode"] == "process"
    assert unit["Service"]["Delegate"] == "yes"
    assert "--state /var/state --foreground" in unit["Service"]["ExecStart"]
    assert unit["Install"]["WantedBy"] == "default.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("folder", ["plain", "with blank", "100%h", "a$HOME"])
def test_systemd_itself_accepts_the_units(tmp_path, folder):
    program = tmp_path / folder / "py"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    for name, text in {
        "phalanx-system.service": write_system_unit(str(program)),
        "phalanx-user.service": write_user_unit(str(program), tmp_path / folder),
    }.items():
        unit = tmp_path / name
        unit.write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
        )
        # An older systemd says that it does not know the second line about delegation, and goes on.
        said = [line for line in done.stderr.splitlines() if name in line and "DelegateSubgroup" not in line]
        assert said == []
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", ["/a\nExecStartPre=/bin/evil", '/a"b', "/a\\b"])
def test_a_path_that_could_mean_something_to_systemd_is_refused(path):
    with pytest.raises(CannotInstall):
        write_system_unit(path)


@needs_root
def test_installing_writes_the_unit_and_starts_it(here):
    plan = plan_install(here(), system=True)
    ran = []
    apply_installation(plan, ran.append)
    unit = here.tmp_path / "root/etc/systemd/system/phalanx.service"
    assert unit.read_text() == write_system_unit(str(here().python))
    assert unit.stat().st_mode & 0o777 == 0o644
    assert [" ".join(command) for command in ran] == [
        "systemctl daemon-reload",
        "systemctl enable phalanx.service",
        "systemctl restart phalanx.service",
    ]
    assert any("usermod -aG phalanx" in note for note in plan.notes)
    apply_installation(plan_install(here(), system=True), ran.append)  # twice does no harm


def test_a_user_can_install_for_himself(here):
    plan = plan_install(here(uid=1000), system=False)
    ran = []
    apply_installation(plan, ran.append)
    assert (here.tmp_path / "config/systemd/user/phalanx.service").exists()
    assert ran[-1] == ("systemctl", "--user", "restart", "phalanx.service")
    assert "enable-linger" in plan.notes[0]


@pytest.mark.parametrize(("plan", "verb"), [(plan_install, ""), (plan_uninstall, " --uninstall")])
def test_without_root_the_answer_is_the_sudo_command(here, plan, verb):
    with pytest.raises(CannotInstall) as told:
        plan(here(uid=1000, command="/venv/bin/phalanx"), system=True)
    assert told.value.hint == f"sudo /venv/bin/phalanx install --system{verb}"


def test_the_sudo_command_names_the_program_where_sudo_would_not_find_it(here):
    beside = here.tmp_path / "opt" / "phalanx"
    beside.touch()
    with pytest.raises(CannotInstall) as told:
        plan_install(here(uid=1000), system=True)
    assert told.value.hint == f"sudo {beside} install --system"


def test_anybody_may_see_what_would_be_done(here):
    text = plan_install(here(uid=1000, root=Path("/")), system=True, only_print=True).describe()
    assert text.startswith("cat > /etc/systemd/system/phalanx.service <<'END'\n# Written by")
    assert "\nEND\nsystemctl daemon-reload\n" in text
    assert "# " in text.splitlines()[-1]
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    text = plan_uninstall(here(uid=1000), system=True, only_print=True).describe()
    assert text.splitlines()[0] == "systemctl disable --now phalanx.service"


def test_a_machine_without_systemd_is_told_so(here):
    with pytest.raises(CannotInstall, match="does not run systemd"):
        plan_install(here(root=here.tmp_path / "elsewhere"), system=True)


def test_a_unit_of_somebody_else_is_left_alone(here):
    unit = here.tmp_path / "root/etc/systemd/system/phalanx.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/usr/bin/something-else\n")
    for plan in (plan_install, plan_uninstall):
        with pytest.raises(CannotInstall, match="not written by phalanx"):
            plan(here(), system=True)
    assert "something-else" in unit.read_text()


@needs_root
@pytest.mark.parametrize("what", ["python", "package"])
def test_root_does_not_run_what_others_can_change(here, what):
    theirs = here.tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thing").touch()
    os.chown(theirs, 12345, 12345)
    with pytest.raises(CannotInstall, match="which others can change") as told:
        plan_install(here(**{what: theirs / "thing"}), system=True)
    assert "/opt/phalanx" in told.value.hint
    os.chown(theirs, 0, 0)
    theirs.chmod(0o777)
    with pytest.raises(CannotInstall, match="which others can change"):
        plan_install(here(**{what: theirs / "thing"}), system=True)
    theirs.chmod(0o755)
    plan_install(here(**{what: theirs / "thing"}), system=True)


@needs_root
def test_root_follows_no_link_into_what_others_can_change(here):
    theirs = here.tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "python").touch()
    os.chown(theirs, 12345, 12345)
    link = here.tmp_path / "link"
    link.symlink_to(theirs / "python")
    with pytest.raises(CannotInstall, match="which others can change"):
        plan_install(here(python=link), system=True)


@needs_root
def test_uninstalling_stops_first_and_keeps_the_state(here):
    apply_installation(plan_install(here(), system=True), lambda command: None)
    plan = plan_uninstall(here(), system=True)
    unit = here.tmp_path / "root/etc/systemd/system/phalanx.service"
    ran = []
    apply_installation(plan, lambda command: ran.append((" ".join(command), unit.exists())))
    assert ran == [("systemctl disable --now phalanx.service", True), ("systemctl daemon-reload", False)]
    assert "/var/lib/phalanx is kept" in plan.notes[0]


def test_nothing_installed_is_nothing_to_uninstall(here):
    with pytest.raises(CannotInstall, match="nothing is installed"):
        plan_uninstall(here(), system=True)


def test_a_command_that_fails_is_told_with_the_next_one():
    with pytest.raises(CannotInstall, match="false failed with 1") as told:
        run_command(["false"])
    assert "journalctl" in told.value.hint
    with pytest.raises(CannotInstall, match="could not be run"):
        run_command(["no such program"])


def test_a_folder_that_cannot_be_written_is_told(here):
    (here.tmp_path / "config").write_text("in the way")
    with pytest.raises(CannotInstall, match="cannot be written"):
        apply_installation(plan_install(here(uid=1000), system=False), lambda command: None)
