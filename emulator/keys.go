package emulator

import (
	"errors"
	"fmt"
	"strings"
)

// Key is a shared access key. A client that signs with it has its rights in all
// entities.
type Key struct {
	// Name is the name of the key; on Azure, of the shared access policy. Neither Name
	// nor Secret may contain a semicolon.
	Name string
	// Secret is what clients sign with. It is base64 on Azure, but used as text,
	// without decoding.
	Secret string
	// Rights are the rights of clients with the key. Default: all.
	Rights Rights
}

// Rights is a set of claims that a key proves. Zero stands for all.
type Rights uint8

const (
	// Listen is the right to receive.
	Listen Rights = 1 << iota
	// Send is the right to send.
	Send
	// Manage is the right to do both, and to use the administration API, as on Azure.
	Manage
)

// has reports whether the rights contain at least one of wanted.
func (r Rights) has(wanted Rights) bool { return r == 0 || r&(wanted|Manage) != 0 }

// String returns the names of the rights, separated by commas, such as "Listen,Send".
func (r Rights) String() string {
	var names []string
	for i, name := range []string{"Listen", "Send", "Manage"} {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRights parses names of rights, separated by commas, case-insensitive:
// "listen,send". It returns an error for any other name.
func ParseRights(text string) (Rights, error) {
	var r Rights
	for name := range strings.SplitSeq(text, ",") {
		switch strings.ToLower(name) {
		case "listen":
			r |= Listen
		case "send":
			r |= Send
		case "manage":
			r |= Manage
		default:
			return 0, errors.New("rights of a key are listen, send and manage, separated by commas") // without the text, which may be a secret
		}
	}
	return r, nil
}

// The key in the connection string if none is configured. It is not secret: the server
// accepts any.
const (
	devKeyName = "RootManageSharedAccessKey"
	devKey     = "SAS_KEY_VALUE"
)

// byName checks the keys, and returns them by name.
func byName(keys []Key) (map[string]Key, error) {
	named := make(map[string]Key, len(keys))
	for _, k := range keys {
		switch _, twice := named[k.Name]; {
		case k.Name == "" || k.Secret == "" || strings.ContainsAny(k.Name+k.Secret, ";\n"):
			return nil, fmt.Errorf("key %q: name and secret must not be empty or contain semicolons or line breaks", k.Name)
		case twice:
			return nil, fmt.Errorf("key %q is configured twice", k.Name)
		case k.Rights > Listen|Send|Manage:
			return nil, fmt.Errorf("key %q: unknown rights", k.Name)
		}
		named[k.Name] = k
	}
	return named, nil
}
