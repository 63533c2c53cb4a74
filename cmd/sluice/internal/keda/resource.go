package keda

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/autoscale/source/lag"
)

// keptFor is how long a measurement is used again: KEDA asks for the value and for the
// activity one after the other, and so do several ScaledObjects and the HPA.
const keptFor = 2 * time.Second

// resource is a consumer group whose lag is measured.
type resource struct {
	config.Lag

	measuring chan struct{} // holds a value while the lag is measured; guards what follows
	measured  time.Time     // when last was measured
	last      lag.Measurement
}

func newResource(l config.Lag) *resource {
	return &resource{Lag: l, measuring: make(chan struct{}, 1)}
}

// measure returns the lag, measured at most keptFor ago. A measurement that fails is not
// kept. Requests wait for each other no longer than ctx.
func (r *resource) measure(ctx context.Context) (lag.Measurement, error) {
	select {
	case r.measuring <- struct{}{}:
	case <-ctx.Done():
		return lag.Measurement{}, fmt.Errorf("lag of %s: another request still measures it: %w", r.Name, context.Cause(ctx))
	}
	defer func() { <-r.measuring }()
	if !r.measured.IsZero() && time.Since(r.measured) < keptFor {
		return r.last, nil
	}
	began := time.Now()
	m, err := r.Source.Measure(ctx)
	if err != nil {
		return m, err
	}
	r.last, r.measured = m, began
	return m, nil
}

// trigger is what a ScaledObject asks for.
type trigger struct {
	resource   *resource
	target     float64
	activation float64
}

// Keys of a ScaledObject's trigger. KEDA passes its own keys on too.
const (
	resourceKey   = "resource"
	targetKey     = "targetLag"
	activationKey = "activationLag"

	fromEnv = "FromEnv"
)

var (
	ownKeys  = []string{resourceKey, targetKey, activationKey}
	kedaKeys = []string{"scalerAddress", "enableTLS", "unsafeSsl"}
)

// known checks the keys of metadata, and returns it without their suffix FromEnv. KEDA has
// replaced the name of the variable in such a key's value, but passes the key on as it is.
func known(metadata map[string]string) (map[string]string, error) {
	all := make(map[string]string, len(metadata))
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		name := strings.TrimSuffix(key, fromEnv)
		if !slices.Contains(ownKeys, name) && !slices.Contains(kedaKeys, name) {
			return nil, fmt.Errorf("metadata %.100q: unknown key: write %s", key, strings.Join(ownKeys, ", "))
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("metadata %s and %s: write one of them", name, key)
		}
		all[name] = metadata[key]
	}
	return all, nil
}

// readTrigger reads the metadata of a ScaledObject.
func readTrigger(resources map[string]*resource, metadata map[string]string) (*trigger, error) {
	metadata, err := known(metadata)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(resources))
	name := metadata[resourceKey]
	switch {
	case name == "" && len(names) == 1:
		name = names[0]
	case name == "":
		return nil, fmt.Errorf("metadata %s is missing: write one of %s", resourceKey, strings.Join(names, ", "))
	case resources[name] == nil:
		return nil, fmt.Errorf("metadata %s: %.100q is not in the file: write one of %s", resourceKey, name, strings.Join(names, ", "))
	}
	t := &trigger{resource: resources[name]}
	t.target, t.activation = float64(t.resource.Target), float64(t.resource.Activation)
	if err := number(metadata, targetKey, &t.target); err != nil {
		return nil, err
	}
	if t.target <= 0 {
		return nil, fmt.Errorf("metadata %s: must be above 0", targetKey)
	}
	if err := number(metadata, activationKey, &t.activation); err != nil {
		return nil, err
	}
	return t, nil
}

// number reads a number of the metadata, if it is there.
func number(metadata map[string]string, key string, to *float64) error {
	text, given := metadata[key]
	if !given {
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= config.MaxLag) { // NaN is neither
		return fmt.Errorf("metadata %s: %.100q: write a number of events, 0 to %d", key, text, config.MaxLag)
	}
	*to = n
	return nil
}

// metricName is the metric's name in the HPA, without the prefix that KEDA adds.
func (t *trigger) metricName() string { return "sluice-lag-" + t.resource.Name }

// value is the lag, but no more than what makes one instance for each partition: others
// would have nothing to read.
func (t *trigger) value(m lag.Measurement) float64 {
	return math.Min(float64(m.Events), t.target*float64(m.Partitions))
}

// active reports whether there must be an instance.
func (t *trigger) active(m lag.Measurement) bool { return float64(m.Events) > t.activation }
