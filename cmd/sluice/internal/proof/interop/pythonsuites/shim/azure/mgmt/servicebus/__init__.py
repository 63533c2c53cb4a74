"""Stands in for azure-mgmt-servicebus: a namespace is one of the emulator's, and entities are
created by Azure's administration client."""

import os
from types import SimpleNamespace

from azure.servicebus.management import ServiceBusAdministrationClient

rules = {}  # the rights of each
hosts = {}  # the emulator's name of each namespace that a test has asked for


def connection(namespace, rights=("Manage", "Send", "Listen"), entity=None):
    """The connection string with the key that has the rights."""
    namespace = hosts.get(namespace, namespace)
    name = "".join(sorted(rights))
    key = os.environ["KEY_" + name.upper()]
    path = ";EntityPath=" + entity if entity else ""
    return f"Endpoint=sb://{namespace}.servicebus.windows.net/;SharedAccessKeyName={name};SharedAccessKey={key}{path}", name, key


class ServiceBusManagementClient:
    def __init__(self):
        self.namespaces, self.queues, self.topics, self.subscriptions = Namespaces(), Queues(), Topics(), Subscriptions()


class Namespaces:
    def begin_create_or_update(self, group, name, parameters):
        hosts[name] = namespace = "standard"
        return SimpleNamespace(result=lambda: SimpleNamespace(name=namespace, id=namespace))

    def list_keys(self, group, namespace, rule):
        text, name, key = connection(namespace, rules.get(rule, ("Manage", "Send", "Listen")))
        return SimpleNamespace(primary_connection_string=text, key_name=name, primary_key=key)

    def create_or_update_authorization_rule(self, group, namespace, name, rule):
        rules[name] = rule.values["rights"]
        return SimpleNamespace(name=name)

    def delete(self, *_):
        pass

    delete_authorization_rule = delete


def admin(namespace):
    return ServiceBusAdministrationClient.from_connection_string(connection(namespace)[0])


class Queues:
    def create_or_update(self, group, namespace, name, queue):
        return admin(namespace).create_queue(name, **set_of(queue))

    def delete(self, group, namespace, name):
        admin(namespace).delete_queue(name)

    def create_or_update_authorization_rule(self, group, namespace, queue, name, rule):
        rules[queue, name] = rule.values["rights"]
        return SimpleNamespace(name=name)

    def list_keys(self, group, namespace, queue, rule):
        text, name, key = connection(namespace, rules[queue, rule], queue)
        return SimpleNamespace(primary_connection_string=text, key_name=name, primary_key=key)

    def delete_authorization_rule(self, *_):
        pass


class Topics:
    def create_or_update(self, group, namespace, name, topic):
        return admin(namespace).create_topic(name)

    def delete(self, group, namespace, name):
        admin(namespace).delete_topic(name)


class Subscriptions:
    def create_or_update(self, group, namespace, topic, name, subscription):
        return admin(namespace).create_subscription(topic, name, **set_of(subscription))

    def delete(self, group, namespace, topic, name):
        admin(namespace).delete_subscription(topic, name)


def set_of(entity):
    """The properties that are not False, which is the default."""
    return {name: value for name, value in entity.values.items() if value is not False and value is not None}
