package emulator

import (
	"log/slog"
	"time"
)

// Hub describes an event hub.
type Hub struct {
	// Name is up to 256 letters, digits, periods, hyphens and underscores.
	Name string
	// Partitions is the number of partitions, 1 to 1,024.
	Partitions int
	// ConsumerGroups are the groups that exist beside $Default. With none, every group exists.
	ConsumerGroups []string
}

// Config holds the settings of a [Server]. The zero value works.
type Config struct {
	// Listen is the address for plain connections. Default "127.0.0.1:0", a free port. "-" is none.
	Listen string
	// TLSListen is the address for TLS connections, with a certificate made for it. Default: none.
	TLSListen string
	// TLSCertOut is a file to which the certificate is written in PEM form, so that clients can trust it. Default: none.
	TLSCertOut string
	// Dir is the directory that keeps the events. It is created if missing; one server at a time can use it. Default: memory.
	Dir string
	// Keys are the shared access keys. Clients must prove that they have one. Default: a development key that clients may use, but needn't:
	// any token passes.
	Keys []Key
	// MaxMessageBytes is the size of the largest message or batch that may be sent, up to 1 MiB. Default 1 MiB, as on Azure's standard tier; on
	// the basic tier it is 256 KiB.
	MaxMessageBytes int
	// Retention is how long events are kept. What is older goes soon, within a hundredth of that or a minute, whichever is less. Default: events
	// are kept for ever.
	Retention time.Duration
	// RetentionBytes is how much is kept of each partition, its newest events, at least 1 MiB. Default: everything.
	RetentionBytes int64
	// Control is the address of an endpoint by which test programs have faults happen: plain HTTP, on loopback. Default: none.
	Control string
	// IdleTimeout is how long a connection may be silent before it is closed. Default 4 minutes.
	IdleTimeout time.Duration
	// Log receives connections' ends at debug level, and failures. Default: nothing is logged.
	Log *slog.Logger
}

// The key in the connection string where none is configured. It is no secret: the server accepts any.
const (
	devKeyName = "RootManageSharedAccessKey"
	devKey     = "SAS_KEY_VALUE"
)

const maxMessage = 1 << 20
