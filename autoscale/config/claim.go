package config

import (
	"fmt"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// claim is something that only one file may use.
type claim struct {
	what  string // for people
	id    string
	place strictyaml.Place
	parts bool // it is used only by parts that run as separate processes
}

// conflict returns an error that names both files if c and an earlier file cannot run at
// the same time.
func (c *Config) conflict(earlier *Config, mode Mode) error {
	file := earlier.places["name"].File
	if c.Resource.Name == earlier.Resource.Name {
		return c.problem("name", fmt.Errorf("the resource %s is that of %s too: give each file a resource of its own", c.Resource.Name, file))
	}
	for _, mine := range c.claims {
		for _, other := range earlier.claims {
			separate := mode == Collector || mode == Logic || mode == Scaler
			if mine.what == other.what && mine.id == other.id && (separate || !mine.parts) {
				return &strictyaml.Problem{Place: mine.place, Err: fmt.Errorf("%s as in %s: two files must not use it at the same time", mine.what, file)}
			}
		}
	}
	return nil
}
