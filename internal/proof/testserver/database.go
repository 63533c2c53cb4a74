package testserver

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// Databases is a database server.
type Databases interface {
	// CreateDatabase makes an empty database and returns its URL.
	CreateDatabase(ctx context.Context, name string) (url string, err error)
	// DropDatabase removes a database, even if there are connections to it.
	DropDatabase(ctx context.Context, name string) error
}

var databases atomic.Int64

// Database makes a database for one test, and returns its URL.
func Database(t testing.TB, server Databases) (url string) {
	t.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	url, err := server.CreateDatabase(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.DropDatabase(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return url
}
