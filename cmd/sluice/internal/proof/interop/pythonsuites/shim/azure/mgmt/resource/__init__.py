"""Stands in for azure-mgmt-resource: there are no resource groups."""

from types import SimpleNamespace


class ResourceManagementClient:
    def __init__(self):
        self.resource_groups = self

    def create_or_update(self, name, parameters):
        return SimpleNamespace(name=name)

    def begin_delete(self, name, **_):
        return SimpleNamespace(result=lambda: None, wait=lambda timeout: None, done=lambda: True)
