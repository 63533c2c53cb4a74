package sqlstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// TestServerDial: the sockets of a server's connections are those of ServerConfig.Dial.
func TestServerDial(t *testing.T) {
	for address, open := range map[string]func(context.Context, string, *ServerConfig) (*Store, error){
		"mysql://user:secret@db.example:3306/flights":              OpenMySQL,
		"sqlserver://user:secret@db.example:1433?database=flights": OpenSQLServer,
	} {
		var dialled string
		_, err := open(t.Context(), address, &ServerConfig{Dial: func(_ context.Context, network, address string) (net.Conn, error) {
			dialled = network + " " + address
			return nil, errors.New("the tunnel is closed")
		}})
		if err == nil || !strings.Contains(err.Error(), "the tunnel is closed") || !strings.HasPrefix(dialled, "tcp db.example:") {
			t.Errorf("%s: dialled %q, %v", address, dialled, err)
		}
	}
}
