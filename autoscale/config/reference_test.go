package config

import "testing"

func TestReferenceIsThatOfTheReader(t *testing.T) {
	for _, problem := range Reference().Check(readExplored) {
		t.Error(problem)
	}
}
