"""Stands in for azure-mgmt-eventhub: a hub that a test creates is one of those that the
emulator was started with, and that no test has used yet."""

import json
import os
import urllib.request
from types import SimpleNamespace

used = set()  # hubs of this process


class EventHubManagementClient:
    def __init__(self, *_, **__):
        self.namespaces = self.event_hubs = self

    def list_keys(self, group, namespace, rule):
        name, key = os.environ["KEY_NAME"], os.environ["KEY"]
        endpoint = "sb://" + namespace + os.environ.get("EVENT_HUB_ENDPOINT_SUFFIX", ".servicebus.windows.net") + "/"
        connection = f"Endpoint={endpoint};SharedAccessKeyName={name};SharedAccessKey={key}"
        return SimpleNamespace(primary_connection_string=connection, key_name=name, primary_key=key)

    def create_or_update(self, group, namespace, name, properties):
        if name in used:  # a change of a hub's properties detaches its links
            body = json.dumps({"hub": name}).encode()
            request = urllib.request.Request(os.environ["CONTROL"] + "/links/detach", body, {"Content-Type": "application/json"})
            urllib.request.urlopen(request).close()
            return SimpleNamespace(name=name)
        unused = os.environ["UNUSED_HUBS"]  # a directory with a file for each
        for hub in sorted(os.listdir(unused)):
            try:
                os.remove(os.path.join(unused, hub))
            except FileNotFoundError:  # another process was faster
                continue
            used.add(hub)
            return SimpleNamespace(name=hub)
        raise RuntimeError("all hubs are used: start the emulator with more")

    def get(self, *_):
        return SimpleNamespace(as_dict=lambda: {"message_retention_in_days": 1})

    def delete(self, *_):
        pass
