package emulator

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/humanize"
)

// AsAzure makes the emulator as strict and as inexact as the services on Azure. Each field of
// its parts is one behaviour, which the zero value leaves out. One value serves all servers:
// each uses its own part.
//
// docs/reference/emulator.md lists the behaviours and their sources.
type AsAzure struct {
	// Seed decides what the behaviours do that Azure does at random. Default 0, a seed
	// like any other.
	Seed uint64

	EventHubs  EventHubsAsAzure
	Cosmos     CosmosAsAzure
	ServiceBus ServiceBusAsAzure
}

// AllAsAzure returns the behaviours that Azure's services have by default, with Azure's values.
// Those of special namespaces and accounts are left out; docs/reference/emulator.md says which.
func AllAsAzure(seed uint64) *AsAzure {
	a := &AsAzure{Seed: seed}
	for _, s := range asAzureSwitches() {
		if !s.special {
			_ = s.set(a, s.azure) // Azure's value is valid: a test sets them all
		}
	}
	return a
}

// ParseAsAzure parses a list of behaviours, separated by commas, such as
//
//	all
//	stale-runtime,envelope-routing
//	all,idle-link=10s,random-busy=off
//
// Each is a name from docs/reference/emulator.md, for Azure's own value, or NAME=VALUE. "all"
// stands for those of [AllAsAzure], and =off takes one out again. It returns an error for an
// unknown name or an invalid value.
func ParseAsAzure(list string, seed uint64) (*AsAzure, error) {
	a := &AsAzure{Seed: seed}
	for item := range strings.SplitSeq(list, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(item), "=")
		if name == "all" && !given {
			a = AllAsAzure(seed)
			continue
		}
		s, err := findAsAzureSwitch(name)
		if err != nil {
			return nil, err
		}
		if !given {
			value = s.azure
		}
		if err := s.set(a, value); err != nil {
			return nil, fmt.Errorf("behaviour %s: %w", name, err)
		}
	}
	return a, nil
}

// orDefault returns a, or the default if a is nil.
func (a *AsAzure) orDefault() *AsAzure {
	if a == nil {
		return asAzureByDefault()
	}
	return a
}

// asAzureSwitch is a behaviour as [ParseAsAzure] knows it.
type asAzureSwitch struct {
	name    string
	azure   string // the value that Azure has, as set takes it
	special bool   // only of special namespaces or accounts: "all" leaves it out
	set     func(a *AsAzure, value string) error
}

// asAzureSwitches returns the switches of all servers.
func asAzureSwitches() []asAzureSwitch {
	list := eventHubsSwitches()
	list = append(list, cosmosSwitches()...)
	return append(list, serviceBusSwitches()...)
}

func findAsAzureSwitch(name string) (asAzureSwitch, error) {
	names := []string{"all"}
	for _, s := range asAzureSwitches() {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	if near := humanize.Nearest(name, names); near != "" {
		return asAzureSwitch{}, fmt.Errorf("unknown behaviour %.40q: did you mean %s?", name, near)
	}
	return asAzureSwitch{}, fmt.Errorf("unknown behaviour %.40q: write %s", name, strings.Join(names, ", "))
}

// switchValue is the type of a behaviour's field.
type switchValue interface {
	bool | int | float64 | time.Duration
}

// onOff returns the switch of a behaviour that has no value.
func onOff(name string, field func(*AsAzure) *bool) asAzureSwitch {
	return newSwitch(name, "on", field, func(text string) (bool, error) {
		if text != "on" {
			return false, errors.New("write on or off")
		}
		return true, nil
	})
}

// count returns the switch of a behaviour whose value is a positive number.
func count(name, azure string, field func(*AsAzure) *int) asAzureSwitch {
	return newSwitch(name, azure, field, func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%.40q: write a whole number of at least 1, such as %s, or off", text, azure)
		}
		return n, nil
	})
}

// duration returns the switch of a behaviour whose value is a positive duration.
func duration(name, azure string, field func(*AsAzure) *time.Duration) asAzureSwitch {
	return newSwitch(name, azure, field, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return 0, fmt.Errorf("%.40q: write a positive duration, such as %s, or off", text, azure)
		}
		return d, nil
	})
}

// share returns the switch of a behaviour whose value is a share of the operations.
func share(name, azure string, field func(*AsAzure) *float64) asAzureSwitch {
	return newSwitch(name, azure, field, func(text string) (float64, error) {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !(f > 0 && f <= 1) {
			return 0, fmt.Errorf("%.40q: write a share of the operations above 0, at most 1, such as %s, or off", text, azure)
		}
		return f, nil
	})
}

func newSwitch[T switchValue](name, azure string, field func(*AsAzure) *T, parse func(string) (T, error)) asAzureSwitch {
	return asAzureSwitch{name: name, azure: azure, set: func(a *AsAzure, text string) (err error) {
		var value T
		if text != "off" {
			if value, err = parse(text); err != nil {
				return err
			}
		}
		*field(a) = value
		return nil
	}}
}

// onlySpecial marks a switch that "all" leaves out.
func onlySpecial(s asAzureSwitch) asAzureSwitch {
	s.special = true
	return s
}
