package pipeline

import (
	"fmt"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// typeProperties are the names of a CloudEvent's type among the properties of an event in binary mode, in
// AMQP and in Kafka.
var typeProperties = []string{"cloudEvents:type", "cloudEvents_type", "ce_type"}

// structured is the beginning of the content type of a CloudEvent that is the body. An array of them
// (cloudevents-batch) has no type.
const structured = "application/cloudevents+json"

var typeInBody = jsonpick.New(jsonpick.Path{{Key: "type"}})

// cloudEventType returns the type of a CloudEvent, in binary or structured mode. It is missing if the event
// is none.
func cloudEventType(e *sluice.Event) (scalar, error) {
	for _, name := range typeProperties {
		if v, ok := e.Properties[name]; ok {
			return ofProperty(v)
		}
	}
	contentType := e.ContentType
	if text, ok := e.Properties["content-type"].(string); ok && contentType == "" { // a header of Kafka
		contentType = text
	}
	if !strings.HasPrefix(strings.ToLower(contentType), structured) {
		return scalar{}, nil
	}
	var picked [1]jsonpick.Value
	if err := typeInBody.Pick(e.Body, picked[:]); err != nil {
		return scalar{}, fmt.Errorf("body: %w", err)
	}
	return ofJSON(picked[0])
}
