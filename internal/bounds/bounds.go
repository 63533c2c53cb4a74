// Package bounds declares bounds whose overflow changes what Sluice does. A build with
// -tags sluice_small_bounds has small ones, for the simulation: each overflow must be reported there.
// Such a build must not be used.
package bounds
