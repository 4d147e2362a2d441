"""Ports in a row that nothing listens at."""

import os
import socket


def free_ports(count):
    """The first of `count` such ports. Processes begin their search at different ones."""
    for first in range(21000 + os.getpid() % 3000 * 3, 32000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise RuntimeError("no free ports")
