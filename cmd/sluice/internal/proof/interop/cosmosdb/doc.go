// Package judges holds what others think of the Cosmos account: Azure's own
// clients for JavaScript and Python, unmodified, go through what an account
// promises.
//
//	judge.js          the checks with @azure/cosmos (npm)
//	judge.py          the checks with azure-cosmos (PyPI)
//	judges_test.go    starts an account and runs both, and makes the vectors of internal/epk anew
//
// scripts/install-judges installs the clients, in the versions that
// cmd/sluice/internal/proof/interop/emulator pins. The Go client's checks are tests of emulator/internal/cosmosdb.
package judges
