"""Writes the tables of the reference pages from the code: `python docs/reference.py`.

Each table stands between two comments of its page and is replaced there; the words around it are written by hand.
`tests/unit/test_documents.py` holds every page to what this would write.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from phalanx import __version__
from phalanx.cli.host import sbatch
from phalanx.cli.host.options import wish_options
from phalanx.client import api
from phalanx.client.daemon_errors import EXIT_CODES
from phalanx.control.spec.gangs import GANG_KEYS
from phalanx.control.spec.queues import QUEUE_KEYS, USER_KEYS
from phalanx.frontends.host import settings
from phalanx.frontends.host.api.openapi import make_document
from phalanx.frontends.host.api.prometheus_meters import PrometheusMeters, find_gauges
from phalanx.frontends.host.core.intake import NOT_HERE
from phalanx.frontends.host.core.jobs import ArrayPlace, Job, Live, Member
from phalanx.frontends.host.core.member_environment import SharedEnvironment, environment
from phalanx.frontends.host.messages import HTTP_STATUS
from phalanx.frontends.host.service import Figures
from phalanx.frontends.sim import library
from phalanx.model.gang import Gang, Role, Shape, Sizes

DOCS = Path(__file__).resolve().parent
MARKED = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in row)} |\n" for row in lines)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# ---- settings

SETTINGS = {
    "policy": "by name, or a file and a name in it; with options as a table `[policy]` ([policies](policies.md))",
    "queues": "`[[queues]]`: name, parent, weight, guarantee, limit, and the bounds below",
    "users": "`[[users]]`: name, limit, and the bounds below",
    "max_queued_per_user": "jobs of one user that have not ended",
    "max_running_per_user": "jobs of one user that run at a time",
    "priority_ceiling": "the highest `--priority` that anybody may ask for; administrators of a shared daemon may more",
    "log_cap_bytes": "what is kept of each rank's output; the oldest goes first",
    "log_keep": "how many older pieces of a log are kept",
    "default_walltime": "what planning believes of a job that states no `--time` and has no earlier runs",
    "kill_grace_s": "between SIGTERM and SIGKILL, unless the job says `--grace`",
    "notice_s": "to save and leave, for members that speak the [protocol](protocol.md)",
    "resize_s": "to answer a change of size",
    "pids_max": "processes of one run; 0: no bound",
    "retention_days": "how long ended jobs and their logs are kept",
    "admin_group": "whose members administer a shared daemon",
    "gpu_hour_price": "reports have a column of costs then",
    "tcp": "listen there too, with [tokens](http-api.md)",
    "reserve": "cores and memory that jobs do not get",
    "display_processes": "processes that may be on a GPU without making it a stranger's",
    "small_use_bytes": "memory of a GPU that does not count as use",
}


def settings_table() -> str:
    """Keys with their defaults, and the variable that says the same."""
    rows = []
    for key in settings.KEYS:
        default = settings._plain_default(key)  # noqa: SLF001 - what `config show` prints
        shown = "-" if default in (None, {}, []) else f"`{default}`" if len(str(default)) < 30 else "a list"
        rows.append((f"`{key}`", shown, SETTINGS[key]))
    return table(("key", "default", "what"), rows)


def bounds_table() -> str:
    """What an entry of a queue or a user may say beside the schema of scenarios."""
    rows = [
        ("`[[queues]]`", _quoted((*QUEUE_KEYS, *settings._QUEUE_EXTRAS))),  # noqa: SLF001 - told nowhere else
        ("`[[users]]`", _quoted((*USER_KEYS, *settings._USER_EXTRAS))),  # noqa: SLF001
    ]
    return table(("entry", "keys"), rows)


# ---- job files

SLURM = {
    "nodes": "1; more is an error: this is one machine",
    "ntasks": "`-n`; the script is started once per task, or once in all if it calls a launcher",
    "ntasks-per-node": "as ntasks",
    "gpus": "`-g`",
    "gpus-per-node": "`-g`",
    "gpus-per-task": "`-g`, times the tasks",
    "gres": "`-g` of `gpu:N`; other kinds mean nothing",
    "cpus-per-task": "`--cpus`",
    "cpus-per-gpu": "`--cpus`, times the GPUs of a task",
    "mem": "`--memory`, divided among the tasks",
    "mem-per-cpu": "`--memory`",
    "mem-per-gpu": "`--memory`",
    "time": "`--time`: it plans and does not kill, except with --signal",
    "begin": "`--begin`",
    "deadline": "`--deadline`",
    "dependency": "`--after`, of afterok, afterany and singleton; others are errors",
    "array": "`--array`",
    "job-name": "`--name`",
    "partition": "`--queue`, if there is one of that name; else a note",
    "chdir": "`--cwd`",
    "export": "`--env`, `--clean-env`",
    "signal": "`--warn` with `--kill-after` from --time",
    "requeue": "`--requeue`",
    "hold": "`--hold`",
}


def options_table() -> str:
    """Options of submit, which are what #PHALANX lines say."""

    @click.command()
    @wish_options
    def submit(**_: object) -> None:
        """Only read."""

    rows = []
    for option in submit.params:
        assert isinstance(option, click.Option)
        value = "" if option.is_flag else f" {option.metavar or option.make_metavar(click.Context(submit))}"
        rows.append((f"`{', '.join(option.opts)}{value}`", option.help or ""))
    return table(("option", "what"), rows)


def sbatch_table() -> str:
    """What becomes of each #SBATCH option."""
    done = [(f"`--{name}`", SLURM[name]) for name in sorted(sbatch.HANDLED)]
    noted = [(f"`--{name}`", f"a note: {why}") for name, why in sorted(sbatch.WORDS.items())]
    return table(("#SBATCH", "here"), [*done, *noted, ("anything else", "a note that it means nothing")])


def gang_keys() -> str:
    """Keys of a gang in a file."""
    return ", ".join(f"`{key}`" for key in GANG_KEYS if key not in (*NOT_HERE, "name")) + "\n"


# ---- what a member finds

VARIABLES = {
    "RANK": "its place in the gang, from 0",
    "WORLD_SIZE": "how many members there are",
    "LOCAL_RANK": "its place on the machine; 0 for a member that sees only its own devices",
    "LOCAL_WORLD_SIZE": "members on the machine; 1 for a member that sees only its own devices",
    "GROUP_RANK": "0; its rank for a member that is a node of its own to what it launches",
    "MASTER_ADDR": "where rank 0 listens",
    "MASTER_PORT": "a port that is free, the same for all members",
    "CUDA_VISIBLE_DEVICES": "the gang's devices by UUID in order of rank, or its own if it has several or a share",
    "PYTHONUNBUFFERED": "1, so that output is in the log at once; what the submitter has set stays",
    "PHALANX_JOB": "the job's id",
    "PHALANX_NAME": "the job's name",
    "PHALANX_ATTEMPT": "which start of the job this is, from 1",
    "PHALANX_GENERATION": "grows with every change of size",
    "PHALANX_RANK": "its number for life, also when ranks move",
    "PHALANX_ROLE": "the role, where a gang has several",
    "PHALANX_DEVICES": "its own devices by UUID",
    "PHALANX_SOCKET": "where it may speak the [protocol](protocol.md)",
    "PHALANX_KEY_FILE": "what proves there that it is of this job",
    "PHALANX_ARRAY_INDEX": "its index, of an element of an array",
    "PET_NNODES": "torchrun's --nnodes: the members",
    "PET_NODE_RANK": "torchrun's --node_rank",
    "PET_NPROC_PER_NODE": "torchrun's --nproc_per_node: the member's devices",
    "PET_MASTER_ADDR": "as MASTER_ADDR",
    "PET_MASTER_PORT": "as MASTER_PORT",
    "PET_RDZV_BACKEND": "torchrun's rendezvous",
    "PET_RDZV_ENDPOINT": "where it is",
    "PET_RDZV_ID": "its name, new in every attempt and generation",
    "PET_MAX_RESTARTS": "0: who restarts is the scheduler",
}


def variables_table() -> str:
    """What the daemon sets, in its order."""
    role = Role("member", Sizes((2,)), Shape((("gpu", 1000),)))
    members = {rank: Member(rank, "member", ((rank, 1000),), rank=rank) for rank in range(2)}
    job = Job(12, 0, 0, "ada", "train", Gang("12", (role,)), "starting", 0, 0.0, array=ArrayPlace("train", 3))
    setting = SharedEnvironment(["GPU-4f", "GPU-a1"], 29500, "RUNS/12.1")
    found = environment({}, job, Live(12, 1, members), members[1], setting)
    rows = [(f"`{name}`", f"`{value}`", VARIABLES[name]) for name, value in found.items()]
    return table(("variable", "for rank 1 of 2 of job 12, say", "what"), rows)


# ---- Python


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _signature(method: Callable[..., object]) -> str:
    text = str(inspect.signature(method)).replace("'", "")
    return text.replace("(self, ", "(").replace("(self)", "()")


def python_text() -> str:
    """The signature of submit, and the methods of a job."""
    signature = re.sub(r"\s+", " ", str(inspect.signature(api.submit)).replace("'", ""))
    found = [f"```python\nphalanx.submit{signature}\n```\n\n{inspect.getdoc(api.submit)}\n\n"]
    found.append(f"Options, as keywords: {', '.join(f'`{name}`' for name in api.OPTIONS if name != 'array')}.\n\n")
    methods = [
        (f"`job.{name}{_signature(method)}`", _first(method))
        for name, method in vars(api.Job).items()
        if callable(method) and not name.startswith("_")
    ]
    return "".join([*found, table(("method", "what"), methods)])


def simulate_text() -> str:
    """The signature of simulate."""
    signature = re.sub(r"\s+", " ", str(inspect.signature(library.simulate)).replace("'", ""))
    return f"```python\nphalanx.simulate{signature}\n```\n\n{inspect.getdoc(library.simulate)}\n"


# ---- codes

CODES = {
    "usage": "what was asked for cannot be meant",
    "unauthorised": "no token, or none that is known",
    "forbidden": "it is somebody else's, or only an administrator's",
    "not_found": "there is no such job",
    "ambiguous": "the word means several jobs",
    "conflict": "the job is in no state for that",
    "too_large": "more than the daemon takes at once",
    "misdirected": "the request names another host",
    "infeasible": "this machine could never run it",
    "too_many": "the user has as many jobs as they may, or asks too often",
    "internal": "the daemon failed at the request; its log has more",
    "unavailable": "the daemon is stopping, or cannot write",
    "unreachable": "no daemon answers",
}


def codes_table() -> str:
    """Error codes, with what a command ends with and what HTTP says."""
    rows = [
        (f"`{code}`", EXIT_CODES.get(code, 1), HTTP_STATUS.get(code, "-"), CODES[code])
        for code in dict.fromkeys([*HTTP_STATUS, *EXIT_CODES])
    ]
    return table(("error", "exit code", "HTTP", "what"), rows)


# ---- HTTP


def _type_of(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_type_of, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type_of(schema['items'])}" if schema.get("items") else "list"
    if schema.get("type") == "object":
        return f"mapping to {_type_of(inner)}" if (inner := schema.get("additionalProperties")) else "mapping"
    return str(schema.get("type", "anything"))


def routes_table() -> str:
    """Every route, from the document that the daemon serves."""
    document = make_document(__version__)
    rows = []
    for path, verbs in document["paths"].items():
        for verb, told in verbs.items():
            query = ", ".join(f"`{each['name']}`" for each in told["parameters"] if each["in"] == "query")
            content = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            body = " or ".join(map(_type_of, content.get("oneOf", [content]))) if content else ""
            rows.append((f"`{verb.upper()} {path}`", told["x-phalanx-scope"], told["summary"], query, body))
    return table(("route", "scope", "what", "query", "body"), rows)


def _default(schema: dict[str, Any]) -> str:
    return f"`{schema['default']!r}`" if "default" in schema else "optional"


def shapes_text() -> str:
    """Every shape with its fields."""
    parts = []
    for name, schema in sorted(make_document(__version__)["components"]["schemas"].items()):
        if "properties" not in schema:
            continue
        needed = set(schema.get("required", ()))
        rows = [
            (f"`{field}`", _type_of(each), "" if field in needed else _default(each))
            for field, each in schema["properties"].items()
        ]
        parts.append(f"### {name}\n\n{schema.get('description', '')}\n\n{table(('field', 'type', 'default'), rows)}")
    return "\n".join(parts)


# ---- metrics


def metrics_table() -> str:
    """Families as a scrape names them."""
    families = [*find_gauges(Figures()), *PrometheusMeters().registry.collect()]
    labels = {each._name: each._labelnames for each in _meters()}  # noqa: SLF001 - the library tells them nowhere else
    rows = []
    for family in families:
        names = labels.get(family.name, ()) or getattr(family, "_labelnames", ())
        suffix = "_total" if family.type == "counter" else ""
        rows.append((f"`{family.name}{suffix}`", family.type, _quoted(names), family.documentation))
    return table(("name", "type", "labels", "what"), rows)


def _meters() -> list[Any]:
    meters = PrometheusMeters()
    return [value for value in vars(meters).values() if hasattr(value, "_labelnames")]


#: Page → the parts that are made.
MADE: dict[str, dict[str, Callable[[], str]]] = {
    "settings.md": {"keys": settings_table, "bounds": bounds_table},
    "job-files.md": {"options": options_table, "sbatch": sbatch_table, "gang-keys": gang_keys},
    "member-environment.md": {"variables": variables_table},
    "python-api.md": {"python": python_text, "simulate": simulate_text},
    "exit-codes.md": {"codes": codes_table},
    "http-api.md": {"routes": routes_table, "shapes": shapes_text},
    "metrics.md": {"metrics": metrics_table},
}


def make_page(name: str) -> str:
    """The page as it should be: its own words, and the parts that are made."""
    parts = MADE[name]
    text = (DOCS / name).read_text(encoding="utf-8")
    assert {match[2] for match in MARKED.finditer(text)} == set(parts), f"{name}: the marks are not those of its parts"
    return MARKED.sub(lambda match: f"{match[1]}{parts[match[2]]()}{match[3]}", text)


def main() -> None:
    """Write all pages."""
    for name in MADE:
        (DOCS / name).write_text(make_page(name), encoding="utf-8")


if __name__ == "__main__":
    main()
