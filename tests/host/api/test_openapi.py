"""The document is checked against the server, and the server against the document."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from phalanx.frontends.host.api.openapi import make_document
from phalanx.frontends.host.api.replies import JSON
from phalanx.frontends.host.api.routes import ROUTES

BODIES = {
    "post_jobs": [
        {"gang": {}, "run": {"command": ["true"]}},
        {"jobs": [{"gang": {}, "run": {"command": ["true"]}}]},
    ],
    "patch_jobs_job": [{"priority": 1}],
    "post_cancel": [{"jobs": ["1", "sweep[0-3]", "36-39"]}],
    "post_hold": [{"jobs": ["1"]}],
    "post_release": [{"jobs": ["1"]}],
    "post_jobs_job_resize": [{"members": 2}, {"members": "auto", "min": 1}],
}
KINDS = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


WORDS = {"$ref", "type", "properties", "required", "items", "enum", "anyOf", "oneOf", "additionalProperties"}
WORDS |= {"default", "title", "description", "minimum", "maximum", "exclusiveMaximum"}


def find_misfits(document, schema, value, at="$"):
    """A small reading of JSON Schema: every word that the document uses, and an error for any other."""
    assert set(schema) <= WORDS, set(schema) - WORDS
    if "$ref" in schema:
        target = document["components"]["schemas"][schema["$ref"].removeprefix("#/components/schemas/")]
        return find_misfits(document, target, value, at)
    choices = schema.get("anyOf", []) + schema.get("oneOf", [])
    if choices:
        return min((find_misfits(document, part, value, at) for part in choices), key=len)
    if not fits(schema, value):
        return [f"{at}: {value!r} is not {schema}"]
    if isinstance(value, list):
        items = schema.get("items", {})
        return [miss for n, part in enumerate(value) for miss in find_misfits(document, items, part, f"{at}[{n}]")]
    return find_misfits_of_fields(document, schema, value, at) if isinstance(value, dict) else []


def fits(schema, value):
    kind = schema.get("type")
    if kind and (not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return False
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return False
    return value in schema.get("enum", [value])


def find_misfits_of_fields(document, schema, value, at):
    fields, rest = schema.get("properties", {}), schema.get("additionalProperties", "properties" not in schema)
    found = [f"{at}: no {name}" for name in schema.get("required", []) if name not in value]
    for name, part in value.items():
        if name in fields or isinstance(rest, dict):
            found += find_misfits(document, fields.get(name, rest), part, f"{at}.{name}")
        elif not rest:
            found.append(f"{at}: {name} is not described")
    return found


@pytest.fixture(scope="module")
def document():
    return json.loads(json.dumps(make_document("1.2.3")))


def operations(document):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


def test_the_form_of_the_document(document):
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == "1.2.3"
    names = [operation["operationId"] for *_, operation in operations(document)]
    assert len(set(names)) == len(names)
    for path, _, operation in operations(document):
        in_path = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
        assert in_path == re.findall(r"\{(\w+)\}", path)
        assert operation["summary"]
        assert set(operation["responses"]) == {"200", "default"}
        assert operation["x-phalanx-scope"] in ("read", "submit", "admin")
        for parameter in operation["parameters"]:
            assert {"name", "in", "required", "schema"} <= set(parameter)
    for reference in re.findall(r'"\$ref": "([^"]+)"', json.dumps(document)):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]
    assert document["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}


def test_what_is_served_is_described_and_nothing_else(document):
    described = {(method, path) for path, method, _ in operations(document)}
    assert described == {(route.method, route.path) for route in ROUTES}


def test_the_run_of_a_submission_is_described_though_the_core_decodes_it(document):
    run = document["components"]["schemas"]["Submission"]["properties"]["run"]
    assert run == {"$ref": "#/components/schemas/Run"}
    assert "command" in document["components"]["schemas"]["Run"]["required"]


def test_the_served_document_is_this_one(play, document):
    async def scenario(api):
        answer = await api.ask("GET", "/openapi.json")
        assert answer.json == document

    play(scenario)


def test_every_operation_answers_as_it_is_described(play, document):
    routes = {(route.method, route.path): route for route in ROUTES}

    async def scenario(api):
        for path, method, operation in operations(document):
            if path == "/v1/events":
                continue  # a stream; its events are looked at below
            for body in BODIES.get(operation["operationId"], [None]):
                if body is not None:
                    content = operation["requestBody"]["content"][JSON]["schema"]
                    assert find_misfits(document, content, body) == []
                at_once = "?timeout_s=0" if path.endswith("/wait") else ""
                encoded = None if body is None else json.dumps(body).encode()
                answer = await api.ask(method, path.replace("{ref}", "12") + at_once, body=encoded)
                assert (path, answer.status) == (path, 200)
                kind = answer.headers["content-type"].partition(";")[0]
                schema = operation["responses"]["200"]["content"][kind]["schema"]
                if kind == JSON:
                    assert find_misfits(document, schema, answer.json) == []
                for wanted in routes[method, path].answers[:1] if body is None else ():
                    msgspec.json.decode(answer.body, type=wanted)

    play(scenario, admin=True)


def test_events_and_errors_are_as_described(play, document):
    async def scenario(api):
        async with api.line() as line:
            await line.send(api.write("GET", "/v1/events"))
            await line.read_head()
            text = await line.reader.readuntil(b"}}\n\n")
        answer = document["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
        told = json.loads(re.search(rb"data: (.*)\n", text)[1])
        assert find_misfits(document, answer["contentSchema"], told) == []
        for method, path in [("GET", "/nope"), ("DELETE", "/v1/jobs"), ("POST", "/v1/jobs")]:
            wrong = await api.ask(method, path)
            assert find_misfits(document, {"$ref": "#/components/schemas/Failure"}, wrong.json) == []

    play(scenario)


def test_every_described_parameter_is_taken_and_no_other(play, document):
    values = {"integer": "1", "number": "1", "boolean": "1"}

    async def scenario(api):
        for path, method, operation in operations(document):
            if path == "/v1/events":
                continue
            url = path.replace("{ref}", "12")
            body = (
                json.dumps(BODIES.get(operation["operationId"], [None])[0]).encode()
                if "requestBody" in operation
                else None
            )
            body = None if body == b"null" else body
            for parameter in operation["parameters"]:
                if parameter["in"] != "query":
                    continue
                kinds = [part.get("type") for part in parameter["schema"].get("anyOf", [parameter["schema"]])]
                value = next(
                    (values[kind] for kind in kinds if kind in values), parameter["schema"].get("default") or "pending"
                )
                answer = await api.ask(method, f"{url}?{parameter['name']}={value}", body=body)
                assert (path, parameter["name"], answer.status) == (path, parameter["name"], 200)
            assert (await api.ask(method, f"{url}?no_such_parameter=1", body=body)).status == 400

    play(scenario, admin=True)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, "x"),
        ({"type": "integer"}, True),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {}),
        ({"type": "object", "properties": {}}, {"b": 1}),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, 3),
        ({"type": "array", "items": {"type": "integer"}}, ["x"]),
        ({"enum": ["a"]}, "b"),
        ({"type": "integer", "minimum": 1}, 0),
    ],
)
def test_the_check_can_fail(schema, value):
    assert find_misfits({}, schema, value)
