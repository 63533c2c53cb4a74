package enginetest

import "slices"

// NoKey is for [Scene.SendKeyed]: events without a key.
func NoKey(int) string { return "" }

// UpTo returns 0 to n-1.
func UpTo(n int) (list []int64) {
	for i := range n {
		list = append(list, int64(i))
	}
	return list
}

// Sorted sorts a list and returns it.
func Sorted(list []int64) []int64 { slices.Sort(list); return list }

// Must returns v, and panics if there is an error.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
