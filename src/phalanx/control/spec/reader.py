"""Text into a tree of values that remember their line.

YAML is the format of the documents; JSON and TOML are accepted. Scalars keep the text they were
written as, because a label `01` or `yes` is a name and not a number or a truth, and mapping keys
are always that text. Duplicate keys are refused: the later one would win in silence.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

import yaml

from phalanx.control.spec.errors import BadInput, show

#: The schema is six levels deep.
_DEPTH_MAX: Final = 50

# The C parser is ten times as fast; some builds of PyYAML come without it.
_Base: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Raw:
    """One value of a file. Containers hold `Raw` again: a dict by text, or a list."""

    value: object
    line: int | None = None
    text: str | None = None  # a scalar as it was written


class BoundedLoader(_Base):  # type: ignore[misc, valid-type]
    """The safe loader with a bound on nesting: the C parser recurses without one, until the process dies."""

    depth = 0

    def descend_resolver(self, current_node: object, current_index: object) -> None:
        """Called on the way into every node; what it is for (paths that imply tags) is not used here."""
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise RecursionError

    def ascend_resolver(self) -> None:
        """Called on the way out."""
        self.depth -= 1

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Bring merged mappings in; each key once, or mappings that merge each other nine times over never end."""
        super().flatten_mapping(node)
        last = {key.value if isinstance(key, yaml.ScalarNode) else id(key): (key, value) for key, value in node.value}
        node.value = list(last.values())


def parse_text(text: str, file: str, extension: str) -> Raw:
    """The tree of a whole file; the format goes by the extension, YAML unless it says otherwise."""
    parse: Callable[[str, str], Raw] = {".json": _parse_json, ".toml": _parse_toml}.get(extension.lower(), _parse_yaml)
    try:
        return parse(text, file)
    except RecursionError:
        # For all three formats: JSON and TOML recurse in Python, whose own limit raises the same.
        raise BadInput("is nested too deeply to be meant", file=file) from None


def raw_of(value: object) -> Raw:
    """The same tree from plain Python values, which know no lines."""
    if isinstance(value, dict):
        # Keys as texts here too: a Python caller's {1: 1, 8: 6.5} must mean what the file's does.
        return Raw({_key_text(key): raw_of(inner) for key, inner in value.items()})
    if isinstance(value, (list, tuple)):
        return Raw([raw_of(inner) for inner in value])
    return Raw(value)


def _key_text(key: object) -> str:
    return key if isinstance(key, str) else show(key)


def _parse_yaml(text: str, file: str) -> Raw:
    try:
        loader = BoundedLoader(text)
        try:
            # Composed and not loaded: nodes still know their line and how a scalar was written.
            node = loader.get_single_node()
            return _YamlTree(loader, file).convert(node) if node is not None else Raw(None, 1)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as bad:
        # Where it noticed and not where the container began: that is nearer to the slip.
        mark = bad.problem_mark or bad.context_mark
        line = mark.line + 1 if mark is not None else None
        raise BadInput(f"is not YAML: {bad.problem or bad.context}{_hint(bad.problem)}", file=file, line=line) from None
    except yaml.YAMLError as bad:
        raise BadInput(f"is not YAML: {bad}", file=file) from None


def _hint(problem: str | None) -> str:
    """The two mistakes that YAML's own words explain worst."""
    if problem and "'\\t'" in problem:
        return "; indent with spaces, not tabs"
    if problem and "mapping values are not allowed" in problem:
        return "; a key is indented differently from its neighbours, or a text with a colon lacks quotes"
    return ""


class _YamlTree:
    """Converts composed nodes. Aliases share one result, so a small file cannot grow without bound."""

    def __init__(self, loader: yaml.SafeLoader, file: str) -> None:
        self._loader = loader
        self._file = file
        self._done: dict[int, Raw] = {}
        self._open: set[int] = set()

    def convert(self, node: yaml.Node) -> Raw:
        """The tree below one node."""
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        key = id(node)
        if key in self._open:
            raise self._refuse(node, "an alias contains itself")
        if key not in self._done:
            # Open while its children are converted: an alias to itself is met again before it is done.
            self._open.add(key)
            self._done[key] = self._container(node)
            self._open.discard(key)
        return self._done[key]

    def _container(self, node: yaml.Node) -> Raw:
        line = node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            return Raw([self.convert(child) for child in node.value], line)
        if isinstance(node, yaml.MappingNode):
            # Before the merge below: a key that stands here and in the merged mapping is meant to override it.
            self._check_keys(node)
            self._loader.flatten_mapping(node)  # `<<:` brings in the pairs of another mapping, first
            return Raw({key.value: self.convert(child) for key, child in node.value}, line)
        raise self._refuse(node, "a value of an unknown sort")

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: dict[Hashable, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._refuse(key, "a key must be a word, not a list or a mapping")
            # By the text, as keys are read: `1` and `01` are two keys.
            if key.value in seen:
                raise self._refuse(key, f"the key {key.value} stands twice; the first is in line {seen[key.value]}")
            seen[key.value] = key.start_mark.line + 1

    def _scalar(self, node: yaml.ScalarNode) -> Raw:
        try:
            # YAML's own reading beside the text: what a value means is decided by who asks, a number or a word.
            value = self._loader.construct_object(node)
        except (ValueError, OverflowError):
            raise self._refuse(node, f"a value that cannot be read: {show(node.value)}") from None
        return Raw(value, node.start_mark.line + 1, node.value)

    def _refuse(self, node: yaml.Node, why: str) -> BadInput:
        return BadInput(why, file=self._file, line=node.start_mark.line + 1)


def _parse_json(text: str, file: str) -> Raw:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        # JSON readers keep the last of two equal keys and say nothing.
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise BadInput(f"the key {twice} stands twice in one object", file=file)
        return found

    try:
        tree = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as bad:
        raise BadInput(f"is not JSON: {bad.msg}", file=file, line=bad.lineno) from None
    except ValueError:  # an integer of more digits than Python reads
        raise BadInput("is not usable JSON: a number of thousands of digits", file=file) from None
    half = _SURROGATE.search(text)
    if half is not None:
        try:
            # Python reads half of a pair as a character, and can write it nowhere; a whole pair is one character.
            json.dumps(tree, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            line = text.count("\n", 0, half.start()) + 1
            raise BadInput(f"is not usable JSON: {half[0]} is half of a character", file=file, line=line) from None
    return raw_of(tree)


_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def _parse_toml(text: str, file: str) -> Raw:
    try:
        return raw_of(tomllib.loads(text))
    except ValueError as bad:  # TOMLDecodeError, and an integer of more digits than Python reads
        message = str(bad)
        # `tomllib` tells the line in words only.
        place = _TOML_PLACE.search(message)
        line = int(place[1]) if place and place[1] else None
        raise BadInput(f"is not TOML: {_TOML_PLACE.sub('', message)}", file=file, line=line) from None
