"""Stands in for the package of the Azure SDK for Python that its tests import, and that is not
published. The resources that tests ask for are in the emulator."""

import asyncio
import functools
import inspect
import os
import uuid


class AzureTestError(Exception):
    pass


class ReservedResourceNameError(Exception):
    pass


class FakeResource:
    def __init__(self, name, id=None):
        self.name, self.id = name, id or name


def get_region_override(default="westus"):
    return default


def get_credential(is_async=False, **_):
    if is_async:
        from azure.identity.aio import ManagedIdentityCredential
    else:
        from azure.identity import ManagedIdentityCredential
    return ManagedIdentityCredential(client_id=os.environ["AZURE_CLIENT_ID"])


def add_general_regex_sanitizer(**_):
    pass


set_custom_default_matcher = add_general_regex_sanitizer


def recorded_by_proxy(test):
    return test


class AzureRecordedTestCase:
    is_live = True
    in_recording = False

    def get_preparer_resource_name(self, prefix):
        return prefix + uuid.uuid4().hex[:12]

    get_resource_name = get_preparer_resource_name

    def create_mgmt_client(self, client, **_):
        return client()

    @staticmethod
    def await_prepared_test(test):
        @functools.wraps(test)
        def run(self, **kwargs):
            return asyncio.run(test(self, **kwargs))

        return run


AzureMgmtRecordedTestCase = AzureRecordedTestCase


def accepted(function, arguments):
    """The arguments that the function takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return arguments
    return {name: value for name, value in arguments.items() if any(p.name == name for p in parameters)}


class Preparer:
    """A decorator that calls a test with resources."""

    given = ("servicebus", "resource_group", "location")  # how the names of such parameters begin

    def __call__(self, test):
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def prepared(case, **kwargs):
                kwargs.update(self.prepare(case, kwargs))
                try:
                    await test(case, **self.arguments(test, kwargs))
                finally:
                    self.clean(kwargs)

        else:

            @functools.wraps(test)
            def prepared(case, **kwargs):
                kwargs.update(self.prepare(case, kwargs))
                try:
                    test(case, **self.arguments(test, kwargs))
                finally:
                    self.clean(kwargs)

        prepared.prepared = True
        # pytest takes what is left for its own fixtures.
        signature = inspect.signature(test)
        prepared.__signature__ = signature.replace(
            parameters=[p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD and not p.name.startswith(self.given)]
        )
        return prepared

    @staticmethod
    def arguments(test, kwargs):
        return kwargs if getattr(test, "prepared", False) else accepted(test, kwargs)

    def prepare(self, case, kwargs):
        return {}

    def clean(self, kwargs):
        pass


class AzureMgmtPreparer(Preparer):
    cache = {}

    def __init__(self, name_prefix="", random_name_length=24, **_):
        self.name_prefix, self.random_name_enabled, self.key = name_prefix, False, None
        self.is_live, self.moniker, self.resource, self.client = True, None, None, None

    def set_cache(self, enabled, *key):
        self.key = (type(self), repr(key)) if enabled else None

    def create_mgmt_client(self, client, **_):
        return client()

    def prepare(self, case, kwargs):
        self.test_class_instance = case
        if self.key is not None and self.key in self.cache:
            return self.cache[self.key]
        self.name = self.moniker = self.name_prefix + uuid.uuid4().hex[:12]
        made = self.create_resource(self.name, **kwargs)
        if self.key is not None:
            self.cache[self.key] = made
        return made

    def clean(self, kwargs):
        if self.key is None:
            self.remove_resource(self.name, **kwargs)


class ResourceGroupPreparer(AzureMgmtPreparer):
    def create_resource(self, name, **_):
        return {"resource_group": FakeResource(name), "location": "westus"}

    def remove_resource(self, name, **_):
        pass


RandomNameResourceGroupPreparer = CachedResourceGroupPreparer = ResourceGroupPreparer


class PowerShellPreparer(Preparer):
    """Gives tests what the environment says, or else the values that stand in for it."""

    def __init__(self, directory, **values):
        self.values = values

    def prepare(self, case, kwargs):
        return {name: os.environ.get(name.upper(), value) for name, value in self.values.items()}
