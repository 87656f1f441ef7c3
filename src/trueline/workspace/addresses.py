"""Which addresses an HTTP reader may connect to, whichever server answers there, and the connections to them.

The host a user has named may be any. Where a server redirects, or a name is
looked up again, only public addresses count, and those the named host had at
first: otherwise a stranger's server could have us ask the services of this machine
and of the network it is in (guard:G10).
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trueline.errors import InputError

if TYPE_CHECKING:
    import httpcore

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# How much a server may say before its answer begins, with all that says it will come soon.
_HEADER_BYTES: Final = 1 << 18
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
# The last 32 bits are an address of the old kind: NAT64, and IPv4-compatible addresses.
_WITH_IPV4: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))


@dataclass(frozen=True, slots=True)
class HostAddress:
    """One address of a host, as `socket.connect` takes it."""

    family: int
    place: tuple[str | int, ...]

    @property
    def ip(self) -> IpAddress:
        """The address itself, without the name of an interface."""
        return ipaddress.ip_address(str(self.place[0]).partition("%")[0])


def looked_up(host: str, port: int) -> list[HostAddress]:
    """Return the addresses of a host, in the order they are to be tried."""
    infos: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [HostAddress(family, place) for family, _, _, _, place in infos]


def is_public(ip: IpAddress) -> bool:
    """Say whether an address is one of the public network, whatever it is written as.

    >>> [
    ...     is_public(ipaddress.ip_address(text))
    ...     for text in ("93.184.216.34", "127.0.0.1", "::ffff:10.0.0.1")
    ... ]
    [True, False, False]
    """
    if isinstance(ip, ipaddress.IPv6Address):
        inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        inner += [ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF) for net in _WITH_IPV4 if ip in net]
        if ip.ipv4_mapped is None and not ip.is_global and ip not in _WITH_IPV4[0]:
            return False
        return not ip.is_multicast and all(is_public(each) for each in inner if each is not None)
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


class Addresses:
    """What one reader may connect to; a transport asks `of` and connects to nothing else.

    >>> Addresses("example.org", look_up=lambda host, port: [HostAddress(2, ("10.0.0.7", port))]).of(
    ...     "other", 80
    ... )
    Traceback (most recent call last):
    trueline.errors.InputError: other is at 10.0.0.7, which is not a public address
      → `trueline config set --user http.allow_private true` allows redirects into private networks
    """

    def __init__(
        self,
        home: str,
        *,
        allow_private: bool = False,
        look_up: Callable[[str, int], list[HostAddress]] = looked_up,
    ) -> None:
        self._home = home.lower()
        self._allow_private = allow_private
        self._look_up = look_up
        self._known: frozenset[IpAddress] | None = None

    def of(self, host: str, port: int) -> list[HostAddress]:
        """Return the addresses of a host that may be connected to; raises if there are none."""
        found = self._look_up(host, port)
        if self._allow_private:
            return found
        if self._known is None and host.lower() == self._home:
            # What the user's own address resolves to at first is the user's choice.
            self._known = frozenset(each.ip for each in found)
        allowed = [each for each in found if is_public(each.ip) or each.ip in (self._known or ())]
        if found and not allowed:
            raise _private(host, found[0].ip)
        return allowed

    def check_beyond_proxy(self, host: str) -> None:
        """Refuse a host that a proxy shall ask, if it is written as a private address or a local name.

        Other names are looked up by the proxy, in its own network.
        """
        if self._allow_private or host.lower() == self._home:
            return
        if host.lower().rstrip(".") == "localhost" or host.lower().rstrip(".").endswith(".localhost"):
            raise _private(host, ipaddress.IPv4Address("127.0.0.1"))
        try:
            # Also forms such as 0x7f.1 and 2130706433, which the system understands.
            infos: Any = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            return
        for info in infos:
            ip = HostAddress(info[0], info[4]).ip
            if not is_public(ip):
                raise _private(host, ip)


def _private(host: str, ip: IpAddress) -> InputError:
    at = "" if host == str(ip) else f" is at {ip}, which"
    return InputError(
        f"{host}{at} is not a public address",
        remedy="`trueline config set --user http.allow_private true` allows redirects into private networks",
        code="BadRedirect",
        host=host,
        address=str(ip),
    )


# --- connections --------------------------------------------------------------------------


class CheckedBackend:
    """Connects to addresses that were looked at: the name is not looked up again. A proxy may be anywhere."""

    def __init__(self, addresses: Addresses | None) -> None:
        self._addresses = addresses

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> CheckedStream:
        import httpcore

        if self._addresses is None:
            places = [host]
        else:
            places = [str(found.place[0]) for found in self._addresses.of(host, port)]
        problem: Exception = OSError(f"{host} has no address")
        for place in places:
            try:
                return CheckedStream(
                    httpcore.SyncBackend().connect_tcp(place, port, timeout, local_address, socket_options)
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = error
        raise problem


class CheckedStream:
    """A connection that acknowledges at once, and does not wait for ever for an answer to begin."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._left: int | None = None

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, timeout)
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                import httpcore

                raise httpcore.RemoteProtocolError(f"more than {_HEADER_BYTES:,} bytes, and no answer begins")
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send a request.

        A server that sends headers and body apart holds the body back until the headers are acknowledged,
        and the system acknowledges 40 ms late: 15.7 s for 600 small objects instead of 1.1 s.
        """
        self._stream.write(buffer, timeout)
        self._left = _HEADER_BYTES
        if _QUICKACK is not None:
            with suppress(OSError):
                self.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def answered(self) -> None:
        """Let the body have any length; that is limited elsewhere."""
        self._left = None

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> CheckedStream:
        return CheckedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
