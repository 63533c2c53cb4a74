// Package enginetest is what the tests of the engine share. A [Scene] is a consumer's surroundings
// in virtual time: a log, a lease store and a store in memory, and what the consumer reports. Only
// tests import it.
package enginetest
