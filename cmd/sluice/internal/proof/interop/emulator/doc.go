// Package emulator holds the interop tests of the emulator: Azure's own clients
// for JavaScript, Python and Java, unmodified, check what event hubs, queues, topics
// and subscriptions promise.
//
//	eventhubs.js       the checks with @azure/event-hubs (npm)
//	eventhubs.py       the checks with azure-eventhub (PyPI)
//	servicebus.js      the checks with @azure/service-bus (npm)
//	checks.js          what the checks in JavaScript share
//	vectors.js         prints which partitions @azure/event-hubs chooses by key
//	java/              the checks with azure-messaging-eventhubs and azure-messaging-servicebus (Maven)
//	servers_test.go    starts emulators
//	interop_test.go    runs the checks
//	java_test.go       runs those with Java, as part of make soak
//
// scripts/install-interop installs the clients, in the versions that
// package-lock.json and requirements.txt pin, and scripts/install-interop-java those
// for Java. The Go client's checks are tests
// of the emulator itself.
package emulator
