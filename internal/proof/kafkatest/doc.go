//go:build unix

// Package kafkatest gives tests real brokers of Apache Kafka of their own.
//
//   - [Run] provides one broker for a test binary, and [Topic] makes a fresh topic on it for each
//     test.
//   - [New] starts a cluster for one test, of one broker or more, which may kill, pause and restart
//     each of them, move the leaders of partitions, and make a partition lose its end.
//
// Each broker is a controller too (KRaft, combined mode), so a cluster of three survives the loss of
// any one. Brokers listen on loopback only, keep their data in their own directory, and end with the
// tests, however they end. scripts/install-kafka installs the program.
package kafkatest
