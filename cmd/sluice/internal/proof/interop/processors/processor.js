// An event processor as @azure/event-hubs has it, which stores a checkpoint after every tenth event
// of a partition. It prints "handled PARTITION SEQUENCE" for each event, and "stored PARTITION
// SEQUENCE" for each checkpoint, when it is done. It runs until it is killed.
//
// Environment: HUB (connection string of the namespace), STORAGE (of the storage account).
"use strict";

const { writeSync } = require("node:fs");
const { setTimeout: sleep } = require("node:timers/promises");
const { EventHubConsumerClient, earliestEventPosition } = require("@azure/event-hubs");
const { BlobCheckpointStore } = require("@azure/eventhubs-checkpointstore-blob");
const { ContainerClient } = require("@azure/storage-blob");

const every = 10;
const store = new BlobCheckpointStore(new ContainerClient(process.env.STORAGE, "checkpoints"));
const client = new EventHubConsumerClient("$Default", process.env.HUB, "flights", store, {
  loadBalancingOptions: { strategy: "greedy", updateIntervalInMs: 1000 },
});
const say = (what, partition, e) => writeSync(1, `${what} ${partition} ${e.sequenceNumber}\n`);

client.subscribe({
  processEvents: async (events, context) => {
    for (const e of events) {
      await sleep(5); // its work
      say("handled", context.partitionId, e);
      if ((e.sequenceNumber + 1) % every === 0) {
        await context.updateCheckpoint(e);
        say("stored", context.partitionId, e);
      }
    }
  },
  processError: async (e) => console.error(e),
}, { startPosition: earliestEventPosition, maxBatchSize: 20, maxWaitTimeInSeconds: 1 });
