"""Every command that the program tells people to type is one: its verb is there, and its options are."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

import phalanx
from phalanx.cli import main
from phalanx.cli.kube.plugin import main as plugin

SOURCE = Path(phalanx.__file__).parent
#: What speaks to people: the command line, its client, the daemon.
FOLDERS = ("cli", "client", "frontends/host", "control")
FRAGMENT = re.compile(r"(?<![./\w-])(kubectl )?phalanx ([a-z][a-z-]*)((?:[^;,()\n`'\"|<&#…]|\0)*)")
#: Sentences about the program in which a word behind its name is no verb.
PROSE = {"keeps", "knows", "inside", "where", "is", "daemon", "run"}


def spoken():
    """Texts of the source that people may see, with a zero for what is filled in; no docstrings but those of commands."""
    for folder in FOLDERS:
        for path in sorted((SOURCE / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    yield path, "".join(v.value if isinstance(v, ast.Constant) else "\0" for v in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                    yield path, node.value


def fragments():
    found = {}
    for path, text in spoken():
        for plugged, verb, rest in FRAGMENT.findall(text):
            if verb not in PROSE:
                found.setdefault((plugged, verb, rest.partition("  ")[0].strip()), path.relative_to(SOURCE).as_posix())
    return found


def understand(command, words):
    """Let the command line read words without running them."""
    context = None
    while True:
        context = command.make_context(command.name, list(words), parent=context)
        if not isinstance(command, click.Group) or (command.invoke_without_command and not context.args):
            return
        _, command, words = command.resolve_command(context, [*context._protected_args, *context.args])


def read(verb, rest, program=main):
    """The words of a hint, as far as they are a command: what follows it may be a sentence, and that has no options."""
    words = [verb, *shlex.split(rest.replace("\0", "12").replace("`", ""))]
    last = None
    for end in range(len(words), 0, -1):
        if end < len(words) and words[end].startswith("-"):
            break  # an option that was not understood is no sentence
        try:
            understand(program, words[:end])
        except (click.exceptions.NoArgsIsHelpError, click.exceptions.Exit):
            return None  # help, which is what was meant
        except click.UsageError as bad:
            last = last or bad
        else:
            return None
    return last


@pytest.mark.parametrize(("plugged", "verb", "rest"), sorted(fragments()), ids=str)
def test_hints_are_commands(plugged, verb, rest):
    program = plugin if plugged else main
    assert verb in program.verbs, (verb, rest)
    bad = read(verb, rest, program)
    if isinstance(bad, (click.MissingParameter, click.BadOptionUsage)) and "\0" not in rest:
        return  # a verb, or an option of it, that is named in a sentence: phalanx submit --array makes many
    assert bad is None, f"phalanx {verb} {rest}: {bad.format_message()}"


def test_there_are_hints_and_wrong_ones_are_seen():
    assert len(fragments()) > 80
    assert read("edit", "12 --colour red") is not None
    assert read("preempt", "--drill 12") is None
    assert read("status", "says which") is None
