package storetest

import (
	"errors"

	"github.com/sluice-go/sluice/driver"
)

// isHandlerError reports whether err is a [*driver.HandlerError].
func isHandlerError(err error) bool {
	_, found := errors.AsType[*driver.HandlerError](err)
	return found
}

// otherGroups are groups that a driver which joins names carelessly mixes up with
// testGroup, or can't write.
var otherGroups = []driver.Group{
	{Namespace: "ns2", Topic: "flights/x", Name: "$Default"},
	{Namespace: "ns", Topic: "flights", Name: "x/$Default"},
	{Namespace: "ns/flights", Topic: "x", Name: "$Default"},
	{Namespace: "ns", Topic: "flights/x", Name: "$default"},
	{Namespace: "ns", Topic: "flights/x/", Name: "Default"},
	{Namespace: "ns", Topic: `o'brien"; --%_\`, Name: "Grüße ✈"},
}

var testGroup = driver.Group{Namespace: "ns", Topic: "flights/x", Name: "$Default"}

// incarnation is that of the topic, unless a case says otherwise.
const incarnation = "incarnation 1"
