"""Where commands are looked for before a job is submitted."""

import os
from pathlib import Path

import pytest

from phalanx.client.daemon_errors import UsageError
from phalanx.client.environment import check_command, find_program


@pytest.fixture
def closed(tmp_path):
    """A folder that may not be searched; root is somebody else meanwhile, since nothing is closed to root."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    (folder / "true").touch(mode=0o755)
    uid = os.geteuid()
    folder.chmod(0o000)
    tmp_path.chmod(0o755)
    for above in tmp_path.parents[:2]:
        above.chmod(0o755)
    if uid == 0:
        os.seteuid(12001)
    try:
        yield folder
    finally:
        os.seteuid(uid)
        folder.chmod(0o700)


def test_a_folder_of_the_path_that_may_not_be_searched_is_passed_over(closed):
    """As a shell does it; it was an error about an output that cannot be written."""
    assert find_program("true", {"PATH": f"{closed}:/usr/bin:/bin"}, "/") in (Path("/usr/bin/true"), Path("/bin/true"))
    assert find_program("true", {"PATH": str(closed)}, "/") is None
    with pytest.raises(UsageError, match="there is no file"):
        check_command([f"{closed}/true"], {}, "/")
    with pytest.raises(UsageError, match="there is no command 'no-such'"):
        check_command(["no-such"], {"PATH": str(closed)}, str(closed))
