package pipeline

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// The properties of .NET's types are a time, and text, for columns and filters.
func TestDotNetPropertiesInColumns(t *testing.T) {
	at := time.Date(2024, 1, 2, 1, 10, 31, 935545600, time.UTC)
	for _, c := range []struct {
		value any
		typ   columnType
		want  any
	}{
		{driver.DateTimeOffset(638397546319355456), typeTimestamp, at},
		{driver.DateTimeOffset(638397546319355456), typeText, "2024-01-02T01:10:31.9355456Z"},
		{driver.TimeSpan(937845000000), typeText, "26:03:04.5"},
		{driver.URI("https://example.com/a"), typeText, "https://example.com/a"},
	} {
		v, err := ofProperty(c.value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.typ.convert(v)
		value := got.value()
		if moment, ok := value.(time.Time); ok && moment.Equal(at) {
			value = at
		}
		if err != nil || value != c.want {
			t.Errorf("%v as %s: %v, %v, want %v", c.value, c.typ, value, err, c.want)
		}
	}
}
