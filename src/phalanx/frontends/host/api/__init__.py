"""The daemon's HTTP API: who asks, what they may ask, and in which shape it travels.

The core behind it is a `Service`; nothing here knows more of it than that protocol.
"""

from phalanx.frontends.host.api.prometheus_meters import PrometheusMeters
from phalanx.frontends.host.api.request_limits import ApiLimits
from phalanx.frontends.host.api.server import Server, serve
from phalanx.frontends.host.api.sockets import CannotListen
from phalanx.frontends.host.api.tokens import Token, TokenFileError, Tokens, issue_token, list_tokens, revoke_token

__all__ = [
    "ApiLimits",
    "CannotListen",
    "PrometheusMeters",
    "Server",
    "Token",
    "TokenFileError",
    "Tokens",
    "issue_token",
    "list_tokens",
    "revoke_token",
    "serve",
]
