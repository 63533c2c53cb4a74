package emulator

import "time"

// EventHubsAsAzure makes a [Server] behave as a namespace on Azure does: see [AsAzure]. That
// a consumer group has at most 5 receivers without an epoch per partition holds always.
type EventHubsAsAzure struct {
	// StaleRuntime is how old the runtime information of a partition is. Azure promises
	// no freshness (KEDA's azure_eventhub_scaler.go tolerates a checkpoint ahead of it).
	StaleRuntime time.Duration
	// NoRuntime keeps a partition's last sequence number at -1, as on hubs that IoT Hub
	// feeds (KEDA#5125, KEDA#798). The partition looks empty for ever.
	NoRuntime bool
	// EarlierEvents is how many earlier events a receiver can get first, if its position
	// is after the last event of the partition (azure-sdk-for-java#29502,
	// azure-event-hubs-spark#641, azure-event-hubs-spark#670).
	EarlierEvents int
	// InexactBeginning is by how many events the first sequence number in the runtime
	// information can be below the first event that a receiver gets. It differs from
	// request to request (azure-event-hubs-spark#361, #408, #488).
	InexactBeginning int
	// RuntimeCalls is how many requests for runtime information the namespace answers in
	// a second; more are refused as server-busy. Azure allows 50 (Event Hubs quotas:
	// "number of GetRuntimeInformation calls").
	RuntimeCalls int
	// Connections is how many AMQP connections the namespace has at a time. Azure allows
	// 5,000 on the standard tier, 100 on the basic tier (Event Hubs quotas: "brokered
	// connections").
	Connections int
	// IdleLink is after how long a link without transfers is detached. On Azure 30
	// minutes (AMQP errors in the Service Bus documentation: amqp:link:detach-forced).
	IdleLink time.Duration
	// IdleConnection is after how long a connection without links is closed. On Azure 5
	// minutes (AMQP errors in the Service Bus documentation: amqp:connection:forced).
	IdleConnection time.Duration
	// KnownGroups refuses the consumer groups that are not configured: a hub without any
	// has $Default only.
	KnownGroups bool
	// ReceiverName is how many characters a receiver's name may have. Azure allows 64
	// (.NET SDK: EventHubsClient's MaximumIdentifierLength).
	ReceiverName int
	// EnvelopeRouting chooses the partition of a batch by the key of its envelope alone.
	// By default, the keys of the events in it count, too.
	EnvelopeRouting bool
	// LateRefusal is how long after the answer to its attach a receiver is detached whose
	// position or epoch is refused. By default, the attach itself is refused.
	LateRefusal time.Duration
	// Geo makes the namespace geo-replicated: offsets read EPOCH:OFFSET:SEQUENCE, and
	// [Server.Promote] begins a new replication epoch, in which positions of an earlier
	// epoch are refused (.NET SDK: CheckpointPosition; error
	// com.microsoft:georeplication:invalid-offset).
	Geo bool
	// RandomBusy is the share of operations that are refused as server-busy, chosen by
	// the seed.
	RandomBusy float64
}

func eventHubsSwitches() []asAzureSwitch {
	return []asAzureSwitch{
		duration("stale-runtime", "5s", func(a *AsAzure) *time.Duration { return &a.EventHubs.StaleRuntime }),
		onlySpecial(onOff("no-runtime", func(a *AsAzure) *bool { return &a.EventHubs.NoRuntime })),
		count("earlier-events", "3", func(a *AsAzure) *int { return &a.EventHubs.EarlierEvents }),
		count("inexact-beginning", "3", func(a *AsAzure) *int { return &a.EventHubs.InexactBeginning }),
		count("runtime-calls", "50", func(a *AsAzure) *int { return &a.EventHubs.RuntimeCalls }),
		count("connections", "5000", func(a *AsAzure) *int { return &a.EventHubs.Connections }),
		duration("idle-link", "30m", func(a *AsAzure) *time.Duration { return &a.EventHubs.IdleLink }),
		duration("idle-connection", "5m", func(a *AsAzure) *time.Duration { return &a.EventHubs.IdleConnection }),
		onOff("known-groups", func(a *AsAzure) *bool { return &a.EventHubs.KnownGroups }),
		count("receiver-name", "64", func(a *AsAzure) *int { return &a.EventHubs.ReceiverName }),
		onOff("envelope-routing", func(a *AsAzure) *bool { return &a.EventHubs.EnvelopeRouting }),
		duration("late-refusal", "50ms", func(a *AsAzure) *time.Duration { return &a.EventHubs.LateRefusal }),
		onlySpecial(onOff("geo", func(a *AsAzure) *bool { return &a.EventHubs.Geo })),
		share("random-busy", "0.01", func(a *AsAzure) *float64 { return &a.EventHubs.RandomBusy }),
	}
}
