package pipeline

import (
	"fmt"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// typeProperties are the names of a CloudEvent's type among the properties of an event in binary
// mode, in AMQP and in Kafka.
var typeProperties = []string{"cloudEvents:type", "cloudEvents_type", "ce_type"}

// structured is the beginning of the content type of a CloudEvent that is the body. An array of
// them (cloudevents-batch) has no type.
const structured = "application/cloudevents+json"

var typeInBody = jsonpick.New(jsonpick.Path{{Key: "type"}})

// cloudEventType returns the type of a CloudEvent, in binary or structured mode. It is missing if
// the event is none.
func cloudEventType(e *sluice.Event) (scalar, error) {
	if v, ok := typeProperty(e); ok {
		return ofProperty(v)
	}
	if !isStructured(e) {
		return scalar{}, nil
	}
	var picked [1]jsonpick.Value
	if err := typeInBody.Pick(e.Body, picked[:]); err != nil {
		return scalar{}, fmt.Errorf("body: %w", err)
	}
	return ofJSON(picked[0])
}

// hasTypeInBody reports whether the body of an event has the type.
func hasTypeInBody(e *sluice.Event) bool {
	_, outside := typeProperty(e)
	return !outside && isStructured(e)
}

// typeProperty returns the type of a CloudEvent in binary mode.
func typeProperty(e *sluice.Event) (value any, ok bool) {
	for _, name := range typeProperties {
		if v, ok := e.Properties[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// isStructured reports whether the body of an event is a CloudEvent.
func isStructured(e *sluice.Event) bool {
	contentType := e.ContentType
	if text, ok := e.Properties["content-type"].(string); ok && contentType == "" { // a header of Kafka
		contentType = text
	}
	return strings.HasPrefix(strings.ToLower(contentType), structured)
}
