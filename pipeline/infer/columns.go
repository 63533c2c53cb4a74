package infer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Column is a guess of a column.
type Column struct {
	Name, From, Type string
	Format, Zone     string // empty: the type's own
	Seen             int    // in how many events there is a value that is not null
	Unique           bool   // no value came twice
	Example          string // a value as JSON has it, perhaps shortened
	Why              string // what the guess depends on; empty: the values leave no doubt
}

// Columns returns the columns of all samples, in the order in which their values came; whole: none
// was left out because the events have too many values.
func (s *Sample) Columns() (columns []Column, whole bool) {
	names := map[string]int{}
	var values []*value
	var collect func(v *value)
	collect = func(v *value) {
		for _, m := range v.members {
			if m.isOpen() {
				collect(m)
				continue
			}
			values = append(values, m)
			names[columnName(m.path[len(m.path)-1].Key)]++
		}
	}
	collect(&s.root)
	whole = !s.root.wide && len(values) <= maxColumns
	values = values[:min(len(values), maxColumns)]
	taken := slices.Clone(Reserved)
	for _, v := range values {
		c := v.column()
		key := v.path[len(v.path)-1].Key
		if c.Name = columnName(key); names[c.Name] > 1 && len(v.path) > 1 {
			c.Name = columnName(v.path[len(v.path)-2].Key + "_" + key)
		}
		for base, n := c.Name, 2; slices.Contains(taken, c.Name); n++ {
			c.Name = fmt.Sprintf("%s_%d", base, n)
		}
		taken = append(taken, c.Name)
		columns = append(columns, c)
	}
	return columns, whole
}

// Reserved are the names of columns for where an event stands in its log.
var Reserved = []string{"hub_partition", "sequence_number"}

// maxColumns leaves room for those: SQL Server has 1,024 columns in a table.
const maxColumns = 1000

func (v *value) column() Column {
	var c Column
	if v.objects > 0 {
		c = Column{Type: "json", Why: map[bool]string{true: "objects and other values"}[v.leaf.seen > v.leaf.nulls]}
	} else {
		c = v.leaf.guess(v.path[len(v.path)-1].Key)
	}
	c.From = "body" + v.path.String()
	c.Seen = v.seen() - v.leaf.nulls
	c.Unique = v.leaf.unique && v.objects == 0 && v.leaf.seen > v.leaf.nulls
	c.Example = v.leaf.example
	return c
}

var (
	boundary = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	noName   = regexp.MustCompile(`[^\pL\pN]+`)
)

// columnName makes a name as databases have it: customerName and "Customer Name" are
// customer_name.
func columnName(key string) string {
	const longest = 200 // of which a name is made
	name := boundary.ReplaceAllString(strings.ToValidUTF8(key[:min(len(key), longest)], ""), "${1}_${2}")
	name = strings.Trim(strings.ToLower(noName.ReplaceAllString(name, "_")), "_")
	const most = 58 // of 63 bytes, with room for a number
	for len(name) > most {
		name = strings.TrimRight(string([]rune(name)[:len([]rune(name))-1]), "_")
	}
	if name == "" {
		return "value"
	}
	if unicode.IsDigit([]rune(name)[0]) {
		return "n" + name
	}
	return name
}
