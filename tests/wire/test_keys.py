"""Keys: the derivation of RFC 5869, and key files as they may lie about."""

from __future__ import annotations

import hmac

import pytest

from phalanx.wire import Malformed, read_key
from phalanx.wire.keys import PROTOCOL, derive_key


def test_the_derivation_is_that_of_rfc_5869(monkeypatch):
    # Test case 1 of the RFC; its info is ours by another name, so the protocol's is put in its place.
    salt, secret = bytes(range(13)), b"\x0b" * 22
    okm = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    info = bytes(range(0xF0, 0xFA))
    monkeypatch.setattr("phalanx.wire.keys.PROTOCOL", info[:-4])
    assert derive_key(secret, int.from_bytes(info[-4:], "big"), salt).hex() == okm
    assert PROTOCOL == b"phalanx.job/1"


def test_no_salt_is_a_salt_of_zeros():
    assert derive_key(b"k", 1, b"") == derive_key(b"k", 1, bytes(32))


def test_keys_differ_by_generation_and_nonce_and_are_not_the_job_key():
    keys = {derive_key(bytes(32), generation, salt) for generation in (1, 2) for salt in (b"a", b"b")}
    assert len(keys | {bytes(32)}) == 5
    assert not any(hmac.compare_digest(key, bytes(32)) for key in keys)


def test_a_key_file_is_read(tmp_path):
    path = tmp_path / "key"
    path.write_text("00" * 31 + "fF\n")
    assert read_key(path) == bytes(31) + b"\xff"


@pytest.mark.parametrize("text", ["", "00" * 31, "00" * 33, "zz" * 32, "é" * 32, "0" * 10_000])
def test_a_file_that_is_no_key_is_refused_without_repeating_it(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(Malformed) as refusal:
        read_key(path)
    assert "zz" not in str(refusal.value)
