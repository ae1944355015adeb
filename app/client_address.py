"""Who asks, as far as counting goes: tries of the password, and open event streams."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

from starlette.requests import HTTPConnection

_IPV6_PREFIX = 64


def client_address(connection: HTTPConnection) -> str:
    """Return the client's address; of IPv6 the network, in which one machine has as many addresses as it likes."""
    host = connection.client.host if connection.client else ""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, _IPV6_PREFIX), strict=False)) if not address.is_loopback else str(address)
