"""Tokens: random, hashed, scoped, mortal, and written nowhere else."""

from __future__ import annotations

import logging
import os
import stat

import pytest

from phalanx.frontends.host.api import TokenFileError, Tokens, issue_token, list_tokens, revoke_token

NOW_S = 1_800_000_000.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens"


def test_a_token_is_found_by_its_text_until_it_expires(path):
    text, token = issue_token(path, uid=1000, scope="read", wall_s=NOW_S, life_s=60, note="grafana")
    now = [NOW_S]
    tokens = Tokens(path, wall_s=lambda: now[0])
    assert tokens.find(text) == token
    assert (token.uid, token.scope, token.note, token.expires_s) == (1000, "read", "grafana", NOW_S + 60)
    assert tokens.find(text[:-1]) is None
    assert tokens.find(text + "a") is None
    assert tokens.find(token.hash) is None
    assert tokens.find("") is None
    now[0] = NOW_S + 60
    assert tokens.find(text) is None


def test_the_file_holds_hashes_only_and_is_nobody_elses(path):
    text, token = issue_token(path, uid=0, scope="admin", wall_s=NOW_S)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text.startswith("phx_")
    assert text.removeprefix("phx_") not in path.read_text()
    assert len(bytes.fromhex(token.hash)) == 32
    assert len(text.removeprefix("phx_")) >= 43  # 256 bits in base 64


def test_two_tokens_have_nothing_in_common(path):
    first, second = (issue_token(path, uid=0, scope="read", wall_s=NOW_S) for _ in range(2))
    assert first[0] != second[0]
    assert first[1].id != second[1].id
    assert [token.id for token in list_tokens(path)] == [first[1].id, second[1].id]


def test_revoking_and_issuing_count_at_once(path):
    tokens = Tokens(path, wall_s=lambda: NOW_S)
    first, one = issue_token(path, uid=0, scope="read", wall_s=NOW_S)
    second, _ = issue_token(path, uid=0, scope="read", wall_s=NOW_S)
    assert tokens.find(first) == one
    assert revoke_token(path, one.id)
    assert not revoke_token(path, one.id)
    assert tokens.find(first) is None
    assert tokens.find(second) is not None
    path.unlink()
    assert tokens.find(second) is None


def test_expired_tokens_leave_the_file_when_the_next_is_issued(path):
    issue_token(path, uid=0, scope="read", wall_s=NOW_S, life_s=1)
    _, second = issue_token(path, uid=0, scope="read", wall_s=NOW_S + 2)
    assert list_tokens(path) == [second]


@pytest.mark.parametrize("life_s", [0, -1, float("nan")])
def test_a_token_has_to_live(path, life_s):
    with pytest.raises(ValueError, match="life"):
        issue_token(path, uid=0, scope="read", wall_s=NOW_S, life_s=life_s)
    assert not path.exists()


def test_a_file_that_others_could_have_written_is_not_trusted(path):
    issue_token(path, uid=0, scope="read", wall_s=NOW_S)
    path.chmod(0o640)
    with pytest.raises(TokenFileError, match="chmod 600"):
        list_tokens(path)
    path.chmod(0o600)
    path.write_text("[{]")
    with pytest.raises(TokenFileError, match="damaged"):
        Tokens(path, wall_s=lambda: NOW_S)
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))
    with pytest.raises(TokenFileError, match="cannot be read"):
        list_tokens(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_somebody_else_is_not_trusted(path):
    issue_token(path, uid=0, scope="read", wall_s=NOW_S)
    os.chown(path, 12345, 12345)
    with pytest.raises(TokenFileError, match="own user"):
        list_tokens(path)


def test_a_damaged_file_shuts_the_port_and_says_nothing_of_it(play, tmp_path, caplog):
    async def scenario(api):
        (tmp_path / "tokens").chmod(0o644)
        os.utime(tmp_path / "tokens", (1, 1))
        answer = await api.ask("GET", "/v1/status", tcp=True, token=api.token["admin"])
        assert (answer.status, answer.code) == (503, "unavailable")
        assert str(tmp_path).encode() not in answer.body
        assert (await api.ask("GET", "/v1/status")).status == 200
        assert "chmod 600" in caplog.text

    play(scenario)


def test_tokens_are_in_no_log_and_in_no_answer(play, caplog):
    caplog.set_level(logging.DEBUG)
    seen = []

    async def scenario(api):
        tokens = [*api.token.values(), "phx_guess-of-somebody"]
        for token in tokens:
            paths = ["", f"?token={token}", f"?state={token}", f"/{token}/logs?x={token}"]
            seen.extend([await api.ask("GET", f"/v1/jobs{path}", tcp=True, token=token) for path in paths])
            seen.append(await api.ask("POST", "/v1/jobs", tcp=True, token=token, body=b"%s" % token.encode()))
            api.service.fail = RuntimeError("the core broke")
            seen.append(await api.ask("GET", "/v1/status", tcp=True, token=token))
            api.service.fail = None
        async with api.line(tcp=True) as line:
            await line.send(f"BREW {tokens[0]} HTTP/9\r\n\r\n".encode())
            seen.append(await line.read())
        texts = [caplog.text, *(answer.body.decode() + str(answer.headers) for answer in seen)]
        for token in tokens:
            assert not [text for text in texts if token in text]

    play(scenario, admin=True)
    assert {answer.status for answer in seen} == {200, 400, 401, 403, 500}
    assert "the core broke" in caplog.text
