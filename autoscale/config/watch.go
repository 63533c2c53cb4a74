package config

import "github.com/sluice-go/sluice/autoscale"

// Role is what a process does for a resource.
type Role string

const (
	// Stopped: the file is not valid, or what it names cannot be opened.
	Stopped Role = "stopped"
	// Standby: another process with the same state works on the resource. This one takes
	// over when that one's lease has ended.
	Standby Role = "standby"
	// Active: this process works on the resource.
	Active Role = "active"
)

// Watch is informed of what the autoscalers of a process do, for metrics and probes. Its
// methods are called concurrently, and must return soon.
type Watch interface {
	// OnRole is called when a file's role may have changed, and by a process that stands by
	// with each attempt to take the lease. resource is empty while the file is not valid.
	OnRole(file, resource string, limits autoscale.Limits, role Role)
	OnReading(resource string, p autoscale.Point, err error)
	OnCount(resource string, instances int, err error)
	OnAttempt(a autoscale.Action, err error)
	// OnRound is called by a logic or a scaler that runs as the only part of a process, in each
	// interval, also if nothing can be read, decided or counted.
	OnRound(resource string)
}

// watcher informs a watch about one resource.
type watcher struct {
	Watch
	resource string
}

// watcher returns the hooks of a resource, which do nothing without a Watch.
func (o *Options) watcher(resource string) watcher { return watcher{o.Watch, resource} }

func (w watcher) reading(p autoscale.Point, err error) {
	if w.Watch != nil {
		w.OnReading(w.resource, p, err)
	}
}

func (w watcher) count(instances int, err error) {
	if w.Watch != nil {
		w.OnCount(w.resource, instances, err)
	}
}

func (w watcher) attempt(a autoscale.Action, err error) {
	if w.Watch != nil {
		w.OnAttempt(a, err)
	}
}

func (w watcher) round() {
	if w.Watch != nil {
		w.OnRound(w.resource)
	}
}

// role informs the watch of a file's role; c is nil while the file is not valid.
func (o *Options) role(m *member, c *Config, role Role) {
	if o.Watch == nil {
		return
	}
	if c == nil {
		o.Watch.OnRole(m.path, "", autoscale.Limits{}, role)
		return
	}
	o.Watch.OnRole(m.path, c.Resource.Name, c.Resource.Limits, role)
}
