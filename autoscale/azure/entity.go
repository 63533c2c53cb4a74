package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// Rows other than those of metrics. No metric's key starts with a tilde.
const (
	memoryRow    = "~memory"
	outcomeRow   = "~outcome"
	leaseRow     = "~lease"
	recordPrefix = "~record-"
	afterRecords = "~record." // the first key after those of records
)

// recordRow returns a record's key. Later records sort first.
func recordRow(sequence int64) string {
	return fmt.Sprintf("%s%019d", recordPrefix, math.MaxInt64-sequence)
}

// key encodes a name as a key: Azure does not allow every character in keys.
func key(name string) string {
	plain := func(b byte) bool {
		return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '.' || b == '_'
	}
	var b strings.Builder
	for i := range len(name) {
		if plain(name[i]) {
			b.WriteByte(name[i])
		} else {
			fmt.Fprintf(&b, "=%02X", name[i])
		}
	}
	return b.String()
}

// A property holds 64 KiB of text and an entity 1 MiB, both as UTF-16.
const (
	maxProperty   = 32_000
	maxProperties = 14
)

var errTooLarge = errors.New("it does not fit into a table entity: keep fewer values, by a shorter window or a longer interval")

// put writes a value as JSON into properties of this name.
func put(e *aztables.EDMEntity, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	rest := string(text)
	for i := 0; i == 0 || rest != ""; i++ {
		if i == maxProperties {
			return errTooLarge
		}
		cut := min(maxProperty, len(rest)) // in bytes, of which there are at least as many as UTF-16 units
		for cut < len(rest) && !utf8.RuneStart(rest[cut]) {
			cut--
		}
		e.Properties[numbered(name, i)], rest = rest[:cut], rest[cut:]
	}
	return nil
}

// get decodes what put has written.
func get(e *aztables.EDMEntity, name string, value any) error {
	var b strings.Builder
	for i := 0; ; i++ {
		part, found := e.Properties[numbered(name, i)].(string)
		if !found {
			break
		}
		b.WriteString(part)
	}
	if err := json.Unmarshal([]byte(b.String()), value); err != nil {
		return fmt.Errorf("row %s, property %s: %w", e.RowKey, name, err)
	}
	return nil
}

func numbered(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + strconv.Itoa(i)
}

// number reads an Edm.Int64.
func number(e *aztables.EDMEntity, name string) int64 {
	n, _ := e.Properties[name].(aztables.EDMInt64)
	return int64(n)
}

// row returns an entity without properties.
func row(resource, rowKey string) *aztables.EDMEntity {
	return &aztables.EDMEntity{Entity: aztables.Entity{PartitionKey: key(resource), RowKey: rowKey}, Properties: map[string]any{}}
}
