import pytest

from phalanx.control.spec.errors import BadText
from phalanx.control.spec.hostlist import expand_hosts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a0", ["a0"]),
        ("a[0-3,7]", ["a0", "a1", "a2", "a3", "a7"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("r[0-1]n[0-1]", ["r0n0", "r0n1", "r1n0", "r1n1"]),
        ("a[0-1]-ib", ["a0-ib", "a1-ib"]),
        ("a[0-1],b7", ["a0", "a1", "b7"]),
        ("a[3]", ["a3"]),
        ("x.example.org", ["x.example.org"]),
    ],
)
def test_expansion(text: str, names: list[str]):
    assert expand_hosts(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a[3-0]", "has a reversed range 3-0 (in 'a[3-0]'); write 0-3"),
        ("a[0-100000]", "names more than 100,000 hosts"),
        ("a[0-999]b[0-999]", "names more than 100,000 hosts"),
        ("a[0-99999],b", "names more than 100,000 hosts"),
        ("a[x]", "has a bad range [x]"),
        ("a[]", "has a bad range []"),
        ("a[0-]", "has a bad range [0-]"),
        ("a[0", "is no host list"),
        ("a]0", "is no host list"),
        ("a b", "is no host list"),
        ("a,", "is no host list"),
        ("a[0-99999999999999999999]", "has a bad range"),
    ],
)
def test_what_is_no_host_list(text: str, why: str):
    with pytest.raises(BadText) as bad:
        expand_hosts(text)
    assert why in str(bad.value)
