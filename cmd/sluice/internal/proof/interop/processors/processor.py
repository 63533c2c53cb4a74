"""An event processor as azure-eventhub has it, which stores a checkpoint after every tenth event
of a partition. It prints "handled PARTITION SEQUENCE" for each event, and "stored PARTITION
SEQUENCE" for each checkpoint, when it is done. It runs until it is killed.

Environment: HUB (connection string of the namespace), STORAGE (of the storage account).
"""

import logging
import os
import time

from azure.eventhub import EventHubConsumerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

EVERY = 10
logging.basicConfig(level=logging.WARNING)  # to the standard error


def say(what, context, event):
    os.write(1, f"{what} {context.partition_id} {event.sequence_number}\n".encode())


def handle(context, event):
    time.sleep(0.005)  # its work
    say("handled", context, event)
    if (event.sequence_number + 1) % EVERY == 0:
        context.update_checkpoint(event)
        say("stored", context, event)


store = BlobCheckpointStore.from_connection_string(os.environ["STORAGE"], "checkpoints")
client = EventHubConsumerClient.from_connection_string(
    os.environ["HUB"], "$Default", eventhub_name="flights", checkpoint_store=store, load_balancing_strategy="greedy", load_balancing_interval=1
)
client.receive(on_event=handle, on_error=lambda context, error: logging.error("%s", error), starting_position="-1")
