// Package processors holds the proof that sluice move takes over from the event processors of
// Azure's own clients for JavaScript, Python and Java, and hands back to them. The programs are
// alike: they read the hub flights, keep checkpoints in a storage account, and print what they do.
//
//	processor.js            with @azure/event-hubs and @azure/eventhubs-checkpointstore-blob (npm)
//	processor.py            with azure-eventhub and azure-eventhub-checkpointstoreblob (PyPI)
//	java/Processor.java     with azure-messaging-eventhubs and its checkpoint store (Maven)
//	move_test.go            kills them, moves there, runs the pipeline, and moves back
//	processor_test.go       runs one of them
//	pipeline_test.go        runs sluice
//
// The programs of package emulator check the same clients against the emulator.
package processors
