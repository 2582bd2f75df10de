"""Words for companies: who is one of them, and whose words change when somebody begins or ceases to ask."""

import random

import pytest

from phalanx.frontends.kube.companies import Companies, name_company, name_ports
from phalanx.frontends.kube.neighbours import Companions
from phalanx.frontends.kube.requests import HostPort
from phalanx.frontends.kube.selectors import ABSENT, EXISTS, IN, NOT_IN, Expression, Selector

A = Companions(Selector((Expression("app", IN, ("a",)),)), ("team",))
A_OR_B = Companions(Selector((Expression("app", IN, ("a", "b")),)), ("team", "other"))
NOT_A = Companions(Selector((Expression("app", NOT_IN, ("a",)),)), ("team",))
EVERYBODY = Companions(Selector(), (), Selector())
NOBODY = Companions(None, ("team",))


@pytest.fixture
def companies():
    found = Companies()
    for namespace, app in (("team", "a"), ("team", "b"), ("other", "b"), ("third", "b")):
        found.note((namespace, app), {"app": app, "at": "x"}, (), ())
    found.hand_over()
    return found


@pytest.mark.parametrize(
    ("company", "members"),
    [
        (A, {("team", "a")}),
        (A_OR_B, {("team", "a"), ("team", "b"), ("other", "b")}),
        (NOT_A, {("team", "b"), ("team", "asking")}),
        (EVERYBODY, {("team", "a"), ("team", "b"), ("other", "b"), ("third", "b"), ("team", "asking")}),
        (NOBODY, set()),
    ],
)
def test_whoever_is_selected_bears_the_word_as_long_as_somebody_asks(companies, company, members):
    companies.note(("team", "asking"), {}, [company], ())
    assert members <= companies.hand_over()
    assert {name for name in {*members, ("team", "a"), ("team", "asking")} if companies.list_words(name)} == members
    assert {word for name in members for word in companies.list_words(name)} <= {name_company(company)}
    companies.note(("team", "too"), {}, [company], ())
    companies.forget(("team", "asking"))
    assert all(companies.list_words(name) for name in members - {("team", "asking")})
    companies.forget(("team", "too"))
    assert not any(companies.list_words(name) for name in members)
    assert companies.is_idle


def test_what_changes_nothing_is_no_news(companies):
    companies.note(("team", "a"), {"app": "a", "at": "x"}, (), ())
    assert companies.hand_over() == set()
    companies.note(("team", "a"), {"app": "b"}, (), ())
    assert companies.hand_over() == {("team", "a")}


def test_words_are_equal_for_equal_companies_only_and_can_be_read():
    words = [name_company(each) for each in (A, A_OR_B, NOT_A, EVERYBODY, NOBODY)]
    assert words == [
        "team: app=a", "team|other: app=a|b", "team: app NotIn a",
        "all namespaces: all pods", "nobody",
    ]  # fmt: skip


def test_ports_are_in_use_as_long_as_a_pod_takes_one(companies):
    assert companies.is_idle
    companies.note(("team", "a"), {"app": "a", "at": "x"}, (), [HostPort("TCP", 80)])
    assert not companies.is_idle
    assert companies.hand_over() == {("team", "a")}
    companies.forget(("team", "a"))
    assert companies.is_idle


@pytest.mark.parametrize("seed", range(20))
def test_words_are_those_of_a_plain_search(seed):
    rng, companies, pods, asked = random.Random(seed), Companies(), {}, {}

    def draw_company():
        operator = rng.choice([IN, IN, NOT_IN, EXISTS, ABSENT])
        values = tuple(sorted(rng.sample("xyz", rng.randint(1, 2)))) if operator in (IN, NOT_IN) else ()
        selector = Selector(tuple(Expression(key, operator, values) for key in rng.sample("kl", rng.randint(0, 2))))
        return Companions(
            selector, tuple(rng.sample(["m", "n"], rng.randint(1, 2))), rng.choice([None, None, Selector()])
        )

    for _ in range(120):
        name = rng.choice("mn"), f"p{rng.randint(0, 9)}"
        if rng.random() < 0.3:
            companies.forget(name)
            pods.pop(name, None)
            asked.pop(name, None)
        else:
            pods[name] = {key: rng.choice("xyz") for key in rng.sample("kl", rng.randint(0, 2))}
            asked[name] = tuple(draw_company() for _ in range(rng.randint(0, 2)))
            companies.note(name, pods[name], asked[name], ())
        in_use = {company for some in asked.values() for company in some}
        for each, labels in pods.items():
            wanted = {name_company(company) for company in in_use if company.includes(each[0], None, labels)}
            assert set(companies.list_words(each)) == wanted


def test_a_port_has_words_for_all_addresses_and_for_one():
    assert name_ports([]) == ((), ())
    assert name_ports([HostPort("TCP", 80)]) == (
        ("host port TCP/80", "host port TCP/80 on all addresses"), ("host port TCP/80",),
    )  # fmt: skip
