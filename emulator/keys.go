package emulator

import (
	"errors"
	"fmt"
	"strings"
)

// Key is a shared access key: who can sign with it has its rights, in all entities.
type Key struct {
	// Name is the name of the key, which Azure calls a policy.
	Name string
	// Secret is what clients sign with. It is base64 on Azure, and its text is what counts, not what it decodes to.
	Secret string
	// Rights are what the key lets its holder do. Default: all.
	Rights Rights
}

// Rights are claims that a key proves.
type Rights uint8

const (
	// Listen is the right to receive.
	Listen Rights = 1 << iota
	// Send is the right to send.
	Send
	// Manage is the right to do both, as on Azure.
	Manage
)

// has tells whether the rights contain at least one of wanted.
func (r Rights) has(wanted Rights) bool { return r == 0 || r&(wanted|Manage) != 0 }

// String names the rights as Azure does, the first that a client would miss first.
func (r Rights) String() string {
	var names []string
	for i, name := range []string{"Listen", "Send", "Manage"} {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRights reads the names of rights, separated by commas, in any case: "listen,send".
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
			return 0, errors.New("rights of a key are listen, send and manage, separated by commas") // what stands there may be a secret
		}
	}
	return r, nil
}

// The key in the connection string where none is configured. It is no secret: the server accepts any.
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
			return nil, fmt.Errorf("key %q: name and secret must not be empty, nor contain semicolons", k.Name)
		case twice:
			return nil, fmt.Errorf("key %q is configured twice", k.Name)
		case k.Rights > Listen|Send|Manage:
			return nil, fmt.Errorf("key %q: unknown rights", k.Name)
		}
		named[k.Name] = k
	}
	return named, nil
}
