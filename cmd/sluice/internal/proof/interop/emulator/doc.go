// Package emulator holds the interop tests of the emulator: Azure's own clients
// for JavaScript and Python, unmodified, check what event hubs, queues, topics
// and subscriptions promise.
//
//	eventhubs.js       the checks with @azure/event-hubs (npm)
//	eventhubs.py       the checks with azure-eventhub (PyPI)
//	servicebus.js      the checks with @azure/service-bus (npm)
//	checks.js          what the checks in JavaScript share
//	vectors.js         prints which partitions @azure/event-hubs chooses by key
//	interop_test.go    starts emulators and runs the checks
//
// scripts/install-interop installs the clients, in the versions that
// package-lock.json and requirements.txt pin. The Go client's checks are tests
// of the emulator itself.
package emulator
