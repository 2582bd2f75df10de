"""The OpenAPI document, made from the table of routes and the types that the server decodes with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from phalanx.frontends.host.api.replies import EVENT_STREAM, JSON
from phalanx.frontends.host.api.routes import ROUTES, Route
from phalanx.frontends.host.api.shapes import Failure
from phalanx.frontends.host.messages import Accepted, Run

VERSION: Final = "3.1.0"
_REF: Final = "#/components/schemas/{name}"
_ABOUT: Final = (
    "Over the unix socket the caller is who the kernel says connected. Over TCP, which is on the loopback "
    "interface only, a request carries a bearer token; `x-phalanx-scope` is the scope that it needs."
)


def make_document(version: str, routes: Sequence[Route] = ROUTES) -> dict[str, Any]:
    """The document, as JSON types."""
    kinds = list(dict.fromkeys(kind for route in routes for kind in (*route.bodies, *route.answers)))
    schemas, components = msgspec.json.schema_components([*kinds, Run, Failure], ref_template=_REF)
    schema_by_kind = dict(zip([*kinds, Run, Failure], schemas, strict=True))
    # The daemon decodes this part later, with the job at hand; readers want to know its shape now.
    components["Submission"]["properties"]["run"] = schema_by_kind[Run]
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe(route, schema_by_kind)
    return {
        "openapi": VERSION,
        "info": {"title": "Phalanx", "version": version, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _describe(route: Route, schema_by_kind: dict[type, Any]) -> dict[str, Any]:
    failure = {"description": "What was wrong.", "content": {JSON: {"schema": schema_by_kind[Failure]}}}
    found: dict[str, Any] = {
        "operationId": _name(route),
        "summary": (route.handler.__doc__ or "").strip().splitlines()[0],
        "x-phalanx-scope": route.scope,
        "parameters": _find_parameters(route),
        "responses": {"200": _find_answer(route, schema_by_kind), "default": failure},
    }
    if route.bodies:
        required = all(_needs_fields(kind) for kind in route.bodies)
        content = {JSON: {"schema": _one_of([schema_by_kind[kind] for kind in route.bodies])}}
        found["requestBody"] = {"required": required, "content": content}
    return found


def _find_parameters(route: Route) -> list[dict[str, Any]]:
    """Path, query and headers."""
    found = []
    if "{ref}" in route.path:
        about = "A job's number, its name (the newest of it), the unique beginning of one, or `sweep[3]` of an array."
        found.append(
            {"name": "ref", "in": "path", "required": True, "schema": {"type": "string"}, "description": about}
        )
    _, components = msgspec.json.schema_components([route.query], ref_template=_REF)
    fields = components[route.query.__name__]["properties"]
    found += [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in fields.items()]
    if Accepted in route.answers:
        found.append(_header("Idempotency-Key", "The same word twice is one submit."))
    if route.content_type == EVENT_STREAM:
        found.append(_header("Last-Event-ID", "Go on after this event."))
    return found


def _find_answer(route: Route, schema_by_kind: dict[type, Any]) -> dict[str, Any]:
    schema = _one_of([schema_by_kind[kind] for kind in route.answers]) if route.answers else {}
    if route.content_type == EVENT_STREAM:
        schema = {
            "type": "string",
            "description": "`data` of each event.",
            "contentMediaType": JSON,
            "contentSchema": schema,
        }
    content_type = route.content_type.partition(";")[0]
    return {"description": "The answer.", "content": {content_type: {"schema": schema}}}


def _one_of(schemas: list[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {"oneOf": schemas}


def _header(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": about}


def _needs_fields(kind: type) -> bool:
    return any(field.required for field in msgspec.structs.fields(kind))


def _name(route: Route) -> str:
    words = re.findall(r"[a-z]+", route.path.removeprefix("/v1").replace("{ref}", "job"))
    return "_".join([route.method.lower(), *words])
