// Package judges holds what others think of the emulator: Azure's own clients
// for JavaScript and Python, unmodified, go through what event hubs, queues,
// topics and subscriptions promise.
//
//	judge.js          the checks with @azure/event-hubs (npm)
//	judge.py          the checks with azure-eventhub (PyPI)
//	servicebus.js     the checks with @azure/service-bus (npm)
//	checks.js         what the judges in JavaScript have in common
//	vectors.js        writes down which partitions @azure/event-hubs chooses by key
//	judges_test.go    starts emulators and runs them
//
// scripts/install-judges installs the clients, in the versions that
// package-lock.json and requirements.txt pin. The Go client's checks are tests
// of the emulator itself.
package judges
