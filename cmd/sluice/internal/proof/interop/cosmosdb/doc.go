// Package cosmosdb holds the interop tests of the emulated Cosmos account:
// Azure's own clients for JavaScript and Python, unmodified, check what an
// account promises.
//
//	cosmosdb.js        the checks with @azure/cosmos (npm)
//	cosmosdb.py        the checks with azure-cosmos (PyPI)
//	interop_test.go    starts an account, runs both, and recomputes the vectors of internal/partitionkey
//
// scripts/install-interop installs the clients, in the versions that
// cmd/sluice/internal/proof/interop/emulator pins. The Go client's checks are
// tests of emulator/internal/cosmosdb.
package cosmosdb
