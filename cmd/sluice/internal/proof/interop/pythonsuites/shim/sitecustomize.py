"""Makes the names of Azure's services in FRONT_NAMES lead to the address FRONT, and its
certificate trusted. Python imports this module at each start."""

import os
import socket

names = os.environ.get("FRONT_NAMES", "").split()
alias = "127.77.0.1"  # stands for FRONT: names have no port

if names:
    import certifi

    host, port = os.environ["FRONT"].rsplit(":", 1)
    look_up, connect, connect_ex = socket.getaddrinfo, socket.socket.connect, socket.socket.connect_ex

    def getaddrinfo(name, *args, **kwargs):
        return look_up(alias if name in names else name, *args, **kwargs)

    def target(address):
        return (host, int(port)) if isinstance(address, tuple) and address[0] == alias else address

    socket.getaddrinfo = getaddrinfo
    socket.socket.connect = lambda self, address: connect(self, target(address))
    socket.socket.connect_ex = lambda self, address: connect_ex(self, target(address))
    certifi.where = lambda: os.environ["SSL_CERT_FILE"]
