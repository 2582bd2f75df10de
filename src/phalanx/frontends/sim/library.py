"""`phalanx.simulate`: the simulator from scripts and notebooks, with the same results as `phalanx sim --json`."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from phalanx.control.policies import find_policy
from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.spot import spot_of
from phalanx.frontends.sim.jsonout import encode_results
from phalanx.frontends.sim.run import simulate as run
from phalanx.frontends.sim.scenario import Scenario, parse_scenario
from phalanx.frontends.sim.traces.reading import Reading, read_any
from phalanx.policy import BadOption, UnknownPolicy

#: What a row of CSV says of a gang, behind the policy and the seed.
GANG_COLUMNS: Final = ("name", "user", "state", "submit_s", "start_s", "end_s", "wait_s", "members", "reason")


def simulate(
    what: str | PathLike[str] | Mapping[str, Any],
    policy: str | None = None,
    *,
    options: Mapping[str, object] | None = None,
    cluster: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Play a scenario or a log under a policy; the answer is one element of what `phalanx sim --json` prints.

    `what` is a file, or a scenario as a mapping with the keys of a file. `policy` is a name or a file of your own,
    with `options` laid over it; else what the scenario says. `cluster` is for logs, as `--cluster`. Raises ValueError
    with the place of a mistake. The rows of a table are under "gangs":
    `pandas.DataFrame(phalanx.simulate("examples/backfill.yaml")["gangs"])`.
    """
    try:
        scenario = _read(what, cluster, seed)
        # Options of the scenario hold for the policy it names, also when that is asked for by name.
        said = dict(scenario.policies)
        name = policy if policy is not None else scenario.policies[0][0]
        result = run(scenario, find_policy(name, {**said.get(name, {}), **(options or {})}), seed=seed)
    except (BadInput, BadOption, UnknownPolicy) as bad:
        raise ValueError(str(bad)) from None
    (told,) = msgspec.json.decode(encode_results([result]))
    return dict(told)


def _read(what: str | PathLike[str] | Mapping[str, Any], cluster: str | None, seed: int) -> Scenario:
    if not isinstance(what, Mapping):
        return read_any(Path(what), cluster, Reading(seed=seed))
    if cluster is not None:
        raise BadInput("a scenario has its own cluster; cluster= is for logs")
    return parse_scenario(spot_of(dict(what), "scenario"))


def write_rows(told: Iterable[Mapping[str, Any]], file: IO[str]) -> None:
    """Every gang of every run as a row of CSV."""
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("policy", "seed", *GANG_COLUMNS))
    for each in told:
        for gang in each["gangs"]:
            facts = {**gang, "reason": (gang["reason"] or {}).get("code")}
            rows.writerow((each["policy"], each["seed"], *(facts[column] for column in GANG_COLUMNS)))
