package telemetry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// classicTypes are the members that say of what a line of the classic continuous export is.
var classicTypes = []string{"event", "request", "message", "metric", "basicException", "remoteDependency", "view", "availability", "performanceCounter", "clientPerformance"}

// yieldClassic yields what a line of the classic continuous export of Application Insights has:
//
//	{"event": [{"name": …, "count": …}], "context": {"data": {"eventTime": …, "samplingRate": …},
//	 "custom": {"dimensions": [{…}], "metrics": [{NAME: {"value": …}}]}}, "internal": …}
func yieldClassic(object map[string]any, filter Filter, add func(Item) error) (is bool, err error) {
	context, has := object["context"].(map[string]any)
	i := slices.IndexFunc(classicTypes, func(name string) bool { _, is := object[name].([]any); return is })
	if !has || i < 0 {
		if _, records := object["records"].([]any); records && len(object) == 1 {
			return true, errors.New(`an object with records: write one to a line, for example with jq -c '.records[]'`)
		}
		return false, nil
	}
	if kind := classicTypes[i]; kind != "event" {
		return true, fmt.Errorf("a line of the classic continuous export of the type %s: pass the blobs in the folder Event", kind)
	}
	data, _ := context["data"].(map[string]any)
	custom, _ := context["custom"].(map[string]any)
	shared := fields{}
	shared.set("time", data["eventTime"])
	if rate, sampled := data["samplingRate"]; sampled {
		shared.set("microsoft.sample_rate", rate)
	}
	if measurements := merged(custom["metrics"]); len(measurements) > 0 {
		for name, value := range measurements {
			metric, _ := value.(map[string]any)
			if sampled := metric["sampledValue"]; sampled != nil && sampled != metric["value"] {
				return true, fmt.Errorf("metric %.60q: value %v and sampledValue %v differ: it is not known which of them one item has", name, metric["value"], sampled)
			}
			measurements[name] = metric["value"]
		}
		shared.set("measurements", measurements)
	}
	if dimensions := merged(custom["dimensions"]); len(dimensions) > 0 {
		shared.set("properties", dimensions)
	}
	for _, element := range object["event"].([]any) {
		event, ok := element.(map[string]any)
		if !ok {
			return true, errors.New("event: not an object")
		}
		f := maps.Clone(shared)
		f.set("name", event["name"])
		f.set("itemCount", event["count"])
		if err := f.yield(filter, add); err != nil {
			return true, err
		}
	}
	return true, nil
}

// merged makes one object of a list of them.
func merged(list any) map[string]any {
	all := map[string]any{}
	objects, _ := list.([]any)
	for _, element := range objects {
		object, _ := element.(map[string]any)
		maps.Copy(all, object)
	}
	return all
}
