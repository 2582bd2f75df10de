"""The page as text: complete, safe, and with the numbers of the JSON."""

import base64
import csv
import gzip
import hashlib
import io
import json
import re
from html.parser import HTMLParser

import pytest

from phalanx.frontends.sim.jsonout import encode_results
from phalanx.frontends.sim.report.facts import collect_facts
from phalanx.frontends.sim.report.heading import make_heading
from phalanx.frontends.sim.report.page import make_page
from phalanx.frontends.sim.run import simulate

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Reader(HTMLParser):
    """Elements with their attributes, and the text inside scripts, tables and the rest."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.scripts, self.tables, self.texts = [], [], [], {}, []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag == "table":
            self.tables[dict(attrs).get("class", "")] = []
        if tag == "tr" and self.tables:
            list(self.tables.values())[-1].append([])
        if tag in ("td", "th") and self.tables:
            list(self.tables.values())[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, "every element is closed in its turn"

    def handle_data(self, data):
        if "script" in self.open:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self.open and {"td", "th"} & set(self.open):
            list(self.tables.values())[-1][-1][-1] += data
        else:
            self.texts.append(data)


@pytest.fixture(scope="module")
def page(heading, runs):
    return make_page(heading, runs)


@pytest.fixture(scope="module")
def read(page):
    return Reader(page)


def data_of(read):
    return json.loads(next(text for attributes, text in read.scripts if attributes.get("id") == "data"))


def csv_of(read, name):
    packed = next(text for attributes, text in read.scripts if attributes.get("data-name") == name)
    return list(csv.DictReader(io.StringIO(gzip.decompress(base64.b64decode(packed)).decode())))


def test_nothing_is_loaded_from_anywhere(read, page):
    for tag, attributes in read.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert "style" not in attributes, "the content rules would forbid it"
        assert not [name for name in attributes if name.startswith("on")]
    # The one address is the name of the vector format, which nobody fetches.
    assert set(re.findall(r"https?://[^\s\"'<>]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page


def test_only_our_style_and_script_may_run(read, page):
    rules = next(attributes["content"] for tag, attributes in read.elements if attributes.get("http-equiv"))
    script = [text for attributes, text in read.scripts if "type" not in attributes]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    assert len(script) == 1
    for kind, text in (("script", script[0]), ("style", style)):
        mark = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{mark}'" in rules
    assert rules.startswith("default-src 'none'")


def test_the_same_facts_give_the_same_bytes(heading, mixed, results, page):
    again = [collect_facts(mixed, result, result.policy, 1000) for result in results]
    assert make_page(heading, again) == page


def test_what_was_run_is_told(read):
    text = " ".join(read.texts)
    for words in ("mixed.yaml", "4 nodes of 4 GPUs, 16 in all", "fcfs, easy, goodput", "phalanx sim mixed.yaml"):
        assert words in text


def test_the_parts_of_the_ledger_sum_to_100(read, results):
    header, *rows = read.tables["parts"]
    assert header == ["", "fcfs", "easy", "goodput"]
    for column in (1, 2, 3):
        shares = [0 if row[column] == "–" else round(float(row[column].removesuffix(" %")) * 10) for row in rows]
        assert sum(shares) == 1000
    assert len(rows) == 11
    data = data_of(read)
    for (_, values), result in zip(data["ledgers"], results, strict=True):
        assert sum(values) == pytest.approx(result.metrics["ledger_gpu_s"]["capacity"])


def test_the_comparison_has_the_metrics(read, results):
    rows = {row[0]: row[1:] for row in read.tables["compare"]}
    assert rows["goodput"] == [f"{100 * result.metrics['goodput']:.1f} %" for result in results]
    assert rows["gangs completed"] == ["5 of 6"] * 3
    assert rows["deadlines met"] == [f"{result.metrics['deadlines_met']} of 1" for result in results] or "all 1" in str(
        rows
    )
    for label in ("wait, mean", "wait, 95th percentile", "submit to end, mean", "bounded slowdown, mean", "preemptions",
                  "resizes", "lost GPU-hours", "fairness among users (Jain)"):  # fmt: skip
        assert len(rows[label]) == 3


def test_numbers_in_csv_are_those_of_the_json(read, results):
    told = json.loads(encode_results(results))
    for row, run in zip(csv_of(read, "metrics.csv"), told, strict=True):
        assert (row["policy"], int(row["seed"])) == (run["policy"], run["seed"])
        for key, value in run["metrics"].items():
            if isinstance(value, (int, float)):
                assert json.loads(row[key]) == value
        for part, value in run["metrics"]["ledger_gpu_s"].items():
            assert json.loads(row[f"ledger_gpu_s_{part}"]) == value


def test_every_gang_is_in_a_csv(read, results):
    for run in json.loads(encode_results(results)):
        rows = csv_of(read, f"gangs-{run['policy']}.csv")
        assert [row["gang"] for row in rows] == [gang["name"] for gang in run["gangs"]]
        for row, gang in zip(rows, run["gangs"], strict=True):
            for key in ("submit_s", "start_s", "end_s", "wait_s", "members"):
                assert (json.loads(row[key]) if row[key] else None) == gang[key]
            assert (row["user"], row["state"]) == (gang["user"], gang["state"])


def test_every_picture_has_its_numbers_as_csv(read):
    for name, columns in {
        "over-time.csv": {"capacity", "busy", "productive"},
        "distributions.csv": {"seconds", "share_of_gangs"},
        "queues.csv": {"guarantee", "entitlement", "bounded_slowdown_mean"},
        "queues-over-time.csv": {"held"},
        "users.csv": {"wait_s_mean"},
        "longest-waits.csv": {"needed", "unused", "why"},
    }.items():
        rows = csv_of(read, name)
        assert rows
        assert columns <= rows[0].keys()
        assert {row["policy"] for row in rows} == {"fcfs", "easy", "goodput"}
    buttons = {attributes.get("data-csv") for tag, attributes in read.elements if tag == "button"}
    assert buttons - {None} == {attributes["data-name"] for attributes, _ in read.scripts if "data-name" in attributes}


def test_queues_have_what_they_are_entitled_to(read):
    queues = {queue["name"]: queue for queue in data_of(read)["runs"][0]["queues"]}
    assert queues["research"]["guarantee"] == 8
    assert queues["product"]["limit"] == 12
    assert sum(queue["entitlement"] for queue in queues.values()) == pytest.approx(16)


def test_the_picture_has_the_device_time_of_the_ledger(read, results):
    for run, result in zip(data_of(read)["runs"], results, strict=True):
        boxes = run["picture"]["boxes"]
        held = sum(height * length for height, length in zip(boxes["height"], boxes["length"], strict=True))
        grain = 16 / sum(run["picture"]["heights"])
        ledger = result.metrics["ledger_gpu_s"]
        used = sum(
            ledger[part]
            for part in ("productive", "startup", "snapshot", "restore", "resize", "lost", "idle_allocated")
        )
        assert held * grain == pytest.approx(used, rel=0.005)


def test_one_policy_and_nobody_waiting(read_scenario):
    scenario = read_scenario(
        "cluster: {nodes: [{name: n0, resources: {gpu: 1}}]}\ngangs: [{name: A, members: 1, each: {gpu: 1}, duration: 60}]\n"
    )
    facts = collect_facts(scenario, simulate(scenario, "easy"), "easy", 100)
    found = Reader(make_page(make_heading(scenario, "x", "x", [0]), [facts]))
    assert "Nobody waited." in found.texts


def test_nothing_that_ever_ran(read_scenario):
    scenario = read_scenario(
        "cluster: {nodes: [{name: n0, resources: {gpu: 1}}]}\ngangs: [{name: A, members: 9, each: {gpu: 1}, duration: 60}]\n"
    )
    facts = collect_facts(scenario, simulate(scenario, "easy"), "easy", 100)
    found = Reader(make_page(make_heading(scenario, "x", "x", [0]), [facts]))
    assert data_of(found)["runs"][0]["picture"]["boxes"]["gang"] == []


def test_several_seeds_draw_the_first_and_count_all(mixed, results):
    first = collect_facts(mixed, results[1], "easy", 100)
    second = collect_facts(mixed, results[1], "easy")
    second.seed, second.metrics = 1, {**second.metrics, "goodput": 0}
    found = Reader(make_page(make_heading(mixed, "x", "x", [0, 1]), [first, second]))
    goodput = next(row for row in found.tables["compare"] if row[0] == "goodput")
    assert "±" in goodput[1]
    assert [row["seed"] for row in csv_of(found, "metrics.csv")] == ["0", "1"]
    assert len(data_of(found)["runs"]) == 1


HOSTILE = [
    "</script><img src=x onerror=alert(1)>", "--><script>alert(2)</script>", "</style><b>", "<!--<script>", "]]>",
    "a\"b'c&amp;d", "=HYPERLINK(\"evil\")", "@sum", "-1+2", "\u2028\u2029\u202e", "\ud800",
]  # fmt: skip


@pytest.fixture(scope="module")
def hostile(mixed, results):
    """Results in which every name is an attack."""
    result = simulate(mixed, "easy")
    for index, gang in enumerate(result.gangs):
        gang.name, gang.user, gang.queue = HOSTILE[index], f"{HOSTILE[-1 - index]}<s>", f"<i>{HOSTILE[index + 4]}</i>"
        gang.reason = ("Capacity", f"<u>{HOSTILE[index]}", 1, 0)
        gang.wait_reason = ("<em>", f"<u>{HOSTILE[index]}", 1, 0)
    facts = collect_facts(mixed, result, HOSTILE[0], 1000)
    return make_page(make_heading(mixed, HOSTILE[1], HOSTILE[2], [0]), [facts]), result


def test_hostile_names_stay_text(hostile, page):
    text, result = hostile
    found = Reader(text)
    assert {tag for tag, _ in found.elements} <= {tag for tag, _ in Reader(page).elements}
    data = next(text for attributes, text in found.scripts if attributes.get("id") == "data")
    assert not {"<", ">", "&"} & set(data), "nothing in the data can end it, nor begin a comment in it"
    assert len([1 for attributes, _ in found.scripts if "type" not in attributes]) == 1
    assert not [attributes for _, attributes in found.elements if any(name.startswith("on") for name in attributes)]
    names = {told[0] for told in data_of(found)["runs"][0]["picture"]["told"]}
    assert names <= {gang.name for gang in result.gangs}
    assert names & set(HOSTILE[:6])
    text.encode()  # half characters are written in a way that every file can hold


def test_hostile_names_run_in_no_spreadsheet(hostile):
    text, result = hostile
    name = next(
        attributes["data-name"]
        for attributes, _ in Reader(text).scripts
        if attributes.get("data-name", "").startswith("gangs-")
    )
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
    for row in csv_of(Reader(text), name):
        for value in row.values():
            assert not value.startswith(("=", "+", "@", "\t", "\r"))
            assert not value.startswith("-") or value == "-"
    users = [row["user"] for row in csv_of(Reader(text), name)]
    assert "'-1+2<s>" in users, "the name is still to be read"
    assert len(users) == len(result.gangs)
