// Package published reads what the published autoscaler of Azure Functions writes: the messages of
// its queues Metrics and Actions, and the rows of its table Scaling.
package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Metric is a message of the queue Metrics.
type Metric struct {
	ResourceName string
	Name         string
	Value        Value
}

// Value is a metric's value at a time.
type Value struct {
	Time  Time
	Value float64
}

// Action is a message of the queue Actions: one instance more or less than there are.
type Action struct {
	ResourceName string
	Step         int // 1 or -1
}

// State is what a row of the table has as SerializedState.
type State struct {
	History               []Value
	LastScalingActionTime Time
}

// Time is a time of .NET, in UTC. A text without an offset is in UTC too, in which Functions run.
type Time struct{ time.Time }

// UnmarshalJSON reads a time as Json.NET writes it. Its DateTime.MinValue is the zero time.
func (t *Time) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if at, err := time.Parse(layout, text); err == nil {
			t.Time = at.UTC()
			return nil
		}
	}
	return errors.New("it has a time that is none of .NET")
}

// Is reports whether a message is one of the published autoscaler's. Sluice's own have resource.
func Is(body []byte) bool {
	var p struct{ ResourceName *string }
	return json.Unmarshal(body, &p) == nil && p.ResourceName != nil
}

// ReadMetric reads a message of the queue Metrics.
func ReadMetric(body []byte) (*Metric, error) {
	var m struct {
		Metric
		Value *Value // its absence is an error, not 0
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	if m.Value == nil {
		return nil, errors.New("it has no Value")
	}
	m.Metric.Value = *m.Value
	return &m.Metric, nil
}

// ReadAction reads a message of the queue Actions. Type is the number or the name of .NET's enum.
func ReadAction(body []byte) (*Action, error) {
	var a struct {
		ResourceName string
		Type         json.RawMessage
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, err
	}
	switch string(a.Type) {
	case `0`, `"Up"`:
		return &Action{a.ResourceName, 1}, nil
	case `1`, `"Down"`:
		return &Action{a.ResourceName, -1}, nil
	}
	return nil, fmt.Errorf("its Type is neither Up (0) nor Down (1)")
}

// ReadState reads SerializedState.
func ReadState(text string) (*State, error) {
	var s State
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	return &s, nil
}
