package pipeline

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Unset is an environment variable of a file that is not set.
type Unset struct {
	Variable string
	Keys     []string // that have it, dotted, from the top
}

// placeholders are values for variables that are not set. The first is taken that is valid where
// the file has the variable.
var placeholders = []string{
	"x",
	"Endpoint=sb://unset.servicebus.windows.net/;SharedAccessKeyName=unset;SharedAccessKey=dW5zZXQ=",
	"unset.servicebus.windows.net",
	"localhost:9092",
	"postgres://localhost/unset",
	"mysql://localhost/unset",
	"sqlserver://localhost?database=unset",
	"sqlite:unset.db",
	"all",
	"https://unset.example.com",
	"DefaultEndpointsProtocol=https;AccountName=unset;AccountKey=dW5zZXQ=;EndpointSuffix=core.windows.net",
	"dW5zZXQtb2Ytc2l4dGVlbi1ieXRlcy1vci1tb3JlLi4=",
	"1",
	"30s",
	"true",
}

// LoadOffline is [LoadFile] for tools that look at events without the file's connections: variables
// that are not set, or empty, get a value that is valid in their place. It returns these variables.
func LoadOffline(path string) (*File, []Unset, error) {
	data, err := strictyaml.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var unset []Unset
	chosen := map[string]int{} // placeholders
	lookup := func(name string) (string, bool) {
		if value := os.Getenv(name); value != "" {
			return value, true
		}
		if i, ok := chosen[name]; ok {
			return placeholders[i], true
		}
		return "", false
	}
	for {
		f, err := ParseFile(path, data, lookup)
		problems, ok := errors.AsType[strictyaml.Problems](err)
		if !ok {
			return f, unset, err
		}
		changed := false
		for _, p := range problems {
			if missing, ok := errors.AsType[*strictyaml.UnsetError](p); ok {
				chosen[missing.Variable] = 0
				unset = addUnset(unset, missing.Variable, p.Place.Key)
				changed = true
			}
		}
		if !changed && !nextPlaceholders(unset, problems, chosen) {
			return nil, unset, nameUnset(unset, problems)
		}
	}
}

func addUnset(list []Unset, variable, key string) []Unset {
	i := slices.IndexFunc(list, func(u Unset) bool { return u.Variable == variable })
	if i < 0 {
		return append(list, Unset{variable, []string{key}})
	}
	list[i].Keys = append(list[i].Keys, key)
	return list
}

// nextPlaceholders takes another value for the variables of keys with problems. It returns false if
// there is none.
func nextPlaceholders(unset []Unset, problems strictyaml.Problems, chosen map[string]int) (changed bool) {
	for _, whole := range []bool{false, true} {
		for _, u := range unset {
			wrong := slices.ContainsFunc(problems, func(p *strictyaml.Problem) bool { return u.concerns(p.Place.Key, whole) })
			if wrong && chosen[u.Variable] < len(placeholders)-1 {
				chosen[u.Variable]++
				changed = true
			}
		}
		if changed {
			break
		}
	}
	return changed
}

// concerns reports whether a key has the variable, or, for whole, a key below it.
func (u *Unset) concerns(key string, whole bool) bool {
	return slices.ContainsFunc(u.Keys, func(k string) bool { return k == key || whole && strings.HasPrefix(k, key+".") })
}

// nameUnset names the variables that are not set in place of what is wrong with their placeholders.
func nameUnset(unset []Unset, problems strictyaml.Problems) error {
	for i, p := range problems {
		if n := slices.IndexFunc(unset, func(u Unset) bool { return u.concerns(p.Place.Key, false) }); n >= 0 {
			problems[i] = &strictyaml.Problem{Place: p.Place, Err: &strictyaml.UnsetError{Variable: unset[n].Variable}}
		}
	}
	return problems
}
