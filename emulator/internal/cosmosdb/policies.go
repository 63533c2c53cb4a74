package cosmosdb

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// containerIn is a container's definition in a request.
type containerIn struct {
	ID       string          `json:"id"`
	Key      *keyDefinition  `json:"partitionKey"`
	Indexing json.RawMessage `json:"indexingPolicy"`
	TTL      json.RawMessage `json:"defaultTtl"`
	Unique   uniqueKeyPolicy `json:"uniqueKeyPolicy"`
	Conflict struct {
		Mode string `json:"mode"`
		Path string `json:"conflictResolutionPath"`
	} `json:"conflictResolutionPolicy"`
	Geospatial struct {
		Type string `json:"type"`
	} `json:"geospatialConfig"`
}

// readDefinition reads a container's definition. It refuses policies that the emulator doesn't
// carry out, unless they are the defaults or empty.
func (c *call) readDefinition() (in containerIn, f *failure) {
	var members map[string]json.RawMessage
	if f := c.decode(&members); f != nil {
		return in, f
	}
	if err := json.Unmarshal(c.buffers.in, &in); err != nil {
		return in, badRequest("The request body is not a valid definition of a container.")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch value := string(members[name]); name {
		case "id", "partitionKey", "indexingPolicy", "defaultTtl", "uniqueKeyPolicy", "conflictResolutionPolicy", "geospatialConfig":
		default:
			if !strings.HasPrefix(name, "_") && value != "null" && value != "[]" && value != "{}" {
				return in, badRequest(fmt.Sprintf("The emulator's containers have no %.40q: leave it out.", name))
			}
		}
	}
	switch {
	case in.Conflict.Mode != "" && in.Conflict.Mode != "LastWriterWins" || in.Conflict.Path != "" && in.Conflict.Path != "/_ts":
		return in, badRequest("The emulator has one region: the conflictResolutionPolicy must be LastWriterWins by /_ts.")
	case in.Geospatial.Type != "" && in.Geospatial.Type != "Geography":
		return in, badRequest("The emulator has no spatial functions: the geospatialConfig must be Geography.")
	}
	if _, err := parseDefaultTTL(in.TTL); err != nil {
		return in, badRequest(userMessage(err))
	}
	if _, err := in.Unique.parse(); err != nil {
		return in, badRequest(userMessage(err))
	}
	return in, nil
}

// withDefaultPaths completes an indexing policy that names no paths.
func withDefaultPaths(policy json.RawMessage) json.RawMessage {
	var given, defaults map[string]json.RawMessage
	if json.Unmarshal(policy, &given) != nil || !isIndexed(policy) || given["includedPaths"] != nil || given["excludedPaths"] != nil {
		return policy
	}
	_ = json.Unmarshal(defaultIndexing, &defaults)
	maps.Copy(defaults, given)
	return mustJSON(defaults)
}
