//go:build unix

// Package kafkatest gives tests real brokers of Apache Kafka of their own.
//
//   - [Topic] makes a fresh topic for each test, on one broker that all tests of a test binary
//     share.
//   - [New] starts a cluster for one test, of one broker or more, which may kill, pause and restart
//     each of them, move the leaders of partitions, and make a partition lose its end.
//
// Each broker is a controller too (KRaft, combined mode), so a cluster of three survives the loss
// of any one. Brokers listen on loopback only, keep their data in their own directory, and end with
// the tests, however they end. scripts/install-kafka installs the program.
package kafkatest
