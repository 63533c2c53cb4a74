// Package cosmosdb holds the interop tests of the emulated Cosmos account:
// Azure's own clients for JavaScript and Python, unmodified, check what an
// account promises.
//
//	cosmosdb.js        the checks with @azure/cosmos (npm)
//	cosmosdb.py        the checks with azure-cosmos (PyPI)
//	java/Checks.java   the checks with com.azure:azure-cosmos (Maven), over TLS
//	interop_test.go    starts an account, runs the first two, and recomputes the vectors of internal/partitionkey
//	java_test.go       runs the checks with Java, as part of make soak
//
// scripts/install-interop installs the clients, in the versions that
// cmd/sluice/internal/proof/interop/emulator pins, and scripts/install-interop-java
// that for Java. The Go client's checks are
// tests of emulator/internal/cosmosdb.
package cosmosdb
