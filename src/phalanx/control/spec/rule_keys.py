"""What members ask about others, in files: words that they bear, and rules over topology levels or labels of nodes.

bears: [web]
at_most: {node: 1}           # of the role's own members
apart: {node: [db, web]}     # where nobody bears these, nor any other of its own that bears one
beside: {rack: cache}
spread: {zone: {word: web, skew: 1}}
rather: [{weight: 5, select: {model: h200}}, {weight: 1, apart: {node: web}}]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from phalanx.control.spec.spot import Fields, Spot
from phalanx.model.gang import Shape
from phalanx.model.rules import Apart, AtMost, Beside, Evenly, Rather, Rule, Select
from phalanx.model.topology import NODE_LEVEL

RULE_KEYS: Final = ("bears", "at_most", "apart", "beside", "spread", "rather")
_WISHES: Final = ("select", "apart", "beside", "spread")
_SPREAD_KEYS: Final = ("word", "skew", "domains")

_MOST: Final = 1_000_000


def parse_bears(spot: Spot | None) -> tuple[str, ...]:
    """Words by which rules speak of the members."""
    return tuple(sorted({item.text() for item in spot.items_or_one()})) if spot else ()


def parse_rules(get: Callable[[str], Spot | None], levels: Collection[str]) -> tuple[Rule, ...]:
    """All rules of one role, `levels` being what domains can be made of."""
    # As mappings by domain and not as a list of rules: what is asked of one kind of domain stands in one place, and the
    # same rule cannot be stated twice with two numbers.
    rules: list[Rule] = [AtMost(by, spot.integer(1, _MOST)) for by, spot in _pairs(get("at_most"), levels)]
    rules += [Apart(by, item.text()) for by, spot in _pairs(get("apart"), levels) for item in spot.items_or_one()]
    rules += [Beside(by, item.text()) for by, spot in _pairs(get("beside"), levels) for item in spot.items_or_one()]
    for by, spot in _pairs(get("spread"), levels):
        fields = spot.fields(_SPREAD_KEYS)
        word = fields.need("word", "{word: web, skew: 1}").text()
        rules.append(Evenly(by, word, _number(fields, "skew"), _number(fields, "domains")))
    return tuple(dict.fromkeys(rules))


def parse_rather(
    spot: Spot | None, parse_select: Callable[[Spot | None], Select], levels: Collection[str]
) -> tuple[Rather, ...]:
    """Wishes, each with its weight; the heaviest first, and of equal ones as they are written."""
    found: list[Rather] = []
    for item in spot.items_or_one() if spot else ():
        fields = item.fields(("weight", *_WISHES))
        # One wish to a weight: two under one would be met together or not at all, which nobody who writes them expects.
        verb, weight = fields.one_verb(_WISHES), _number(fields, "weight")
        if verb == "select":
            found.append(Rather(weight, parse_select(fields.get("select"))))
        else:
            get = {verb: fields.get(verb)}.get
            found += [Rather(weight, rule) for rule in parse_rules(get, levels)]
    return tuple(sorted(dict.fromkeys(found), key=lambda rather: -rather.weight))


def check_rules(spot: Spot, shape: Shape, *, confined: bool) -> None:
    """Refuse what could be stated and not be decided. `confined`: members have to be in one domain, or in groups."""
    # A share of a domain is laid on some of its nodes before anybody asks which of them are in one rack. Both at once
    # would be a search, and a no without one would be a false one.
    shares = list_shares(shape)
    if len(shares) > 1:
        spot.refuse(f"shares out two kinds of domains ({' and '.join(shares)}); one of them beside `node` can be met")
    shares += list_spreads(shape)
    if shares and confined:
        spot.refuse(f"is shared out by {shares[0]}, and must be in one domain or in groups; only one can be met")


def list_shares(shape: Shape) -> list[str]:
    """Wider domains of which each gets its share: how many fit depends on all of them at once."""
    # A node of its own for each is a number per node, whatever else there is: `node` beside one wider kind is fine.
    wide = [rule.by for rule in shape.rules if isinstance(rule, AtMost) and rule.by != NODE_LEVEL]
    wide += [rule.by for rule in shape.rules if isinstance(rule, Apart) and rule.word in shape.bears]
    return list(dict.fromkeys(by for by in wide if by != NODE_LEVEL))


def list_spreads(shape: Shape) -> list[str]:
    """Domains over which members are spread evenly."""
    return [rule.by for rule in shape.rules if isinstance(rule, Evenly)]


def rules_tree(shape: Shape) -> dict[str, Any]:
    """The same keys, written."""
    tree: dict[str, Any] = {"bears": list(shape.bears)} if shape.bears else {}
    # Numbers that are defaults as well: read back they are the same, and a dump is for machines.
    _write_rules(tree, shape.rules)
    # In their order, which is part of what is asked: of equal weights the first goes first.
    if shape.rather:
        tree["rather"] = [_rather_tree(rather) for rather in shape.rather]
    return tree


def _rather_tree(rather: Rather) -> dict[str, Any]:
    tree: dict[str, Any] = {"weight": rather.weight}
    if isinstance(rather.wish, tuple):
        return tree | {"select": {label: list(values) for label, values in rather.wish}}
    _write_rules(tree, (rather.wish,))
    return tree


def _write_rules(tree: dict[str, Any], rules: Iterable[Rule]) -> None:
    for rule in rules:
        match rule:
            case AtMost():
                tree.setdefault("at_most", {})[rule.by] = rule.members
            case Apart():
                tree.setdefault("apart", {}).setdefault(rule.by, []).append(rule.word)
            case Beside():
                tree.setdefault("beside", {}).setdefault(rule.by, []).append(rule.word)
            case Evenly():
                said = {"word": rule.word, "skew": rule.max_skew, "domains": rule.min_domains}
                tree.setdefault("spread", {})[rule.by] = said


def _pairs(spot: Spot | None, levels: Collection[str]) -> Iterator[tuple[str, Spot]]:
    for by, inner in spot.pairs() if spot else ():
        # A name that no node has would make a rule that is never in the way: refused, or it would be ignored.
        if by not in levels:
            inner.refuse(f"there is no topology level or label {by!r}; there are {', '.join(sorted(levels))}")
        yield by, inner


def _number(fields: Fields, key: str) -> int:
    spot = fields.get(key)
    return spot.integer(1, _MOST) if spot else 1
