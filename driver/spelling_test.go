package driver_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-go/sluice/driver"
)

type groups []driver.Group

func (g groups) Groups(context.Context, driver.Group) ([]driver.Group, error) { return g, nil }

func TestSpelling(t *testing.T) {
	of := func(namespace, topic, name string) driver.Group {
		return driver.Group{Namespace: namespace, Topic: topic, Name: name}
	}
	asked := of("Contoso.servicebus.windows.net.", "Billing", "$default")
	for name, test := range map[string]struct {
		stores []any
		want   driver.Group
		fails  bool
	}{
		"nobody has it":         {[]any{groups{}, 1, groups{of("contoso.servicebus.windows.net", "billings", "$Default")}}, of("contoso.servicebus.windows.net", "billing", "$Default"), false},
		"in another spelling":   {[]any{groups{of("contoso.servicebus.windows.net", "BILLING", "$Default")}}, of("contoso.servicebus.windows.net", "BILLING", "$Default"), false},
		"as it is asked for":    {[]any{groups{asked}}, asked, false},
		"in two stores":         {[]any{groups{asked}, groups{asked}}, asked, false},
		"in two spellings":      {[]any{groups{asked, of("contoso.servicebus.windows.net", "billing", "$Default")}}, asked, true},
		"in a spelling a store": {[]any{groups{asked}, groups{of("contoso.servicebus.windows.net", "billing", "$Default")}}, asked, true},
	} {
		got, err := driver.Spelling(t.Context(), asked, test.stores...)
		if got != test.want || errors.Is(err, driver.ErrRefused) != test.fails || (err != nil) != test.fails {
			t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
		}
	}
}
