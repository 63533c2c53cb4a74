package strictyaml

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Digest identifies the value: two values have the same digest if they have the same
// keys, in any order, and the same texts after variables were replaced. It shows nothing
// of them.
func (n Node) Digest() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(n.canonical())))
}

func (n Node) canonical() string {
	if n.yaml.Kind == yaml.ScalarNode {
		text, _, err := expand(n.yaml.Value, n.file.lookup)
		if err != nil {
			text = n.yaml.Value
		}
		return fmt.Sprintf("%q", text)
	}
	parts := make([]string, len(n.yaml.Content))
	for i, part := range n.yaml.Content {
		parts[i] = Node{file: n.file, yaml: part}.canonical()
	}
	if !n.IsMapping() {
		return "[" + strings.Join(parts, ",") + "]"
	}
	var pairs []string
	for pair := range slices.Chunk(parts, 2) {
		pairs = append(pairs, strings.Join(pair, ":"))
	}
	slices.Sort(pairs)
	return "{" + strings.Join(pairs, ",") + "}"
}
