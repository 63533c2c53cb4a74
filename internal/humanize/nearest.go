package humanize

import "strings"

// maxWord is the length in bytes of the longest word that Nearest looks up: the
// cost of a comparison grows with the product of both lengths.
const maxWord = 64

// Nearest returns the one of candidates that is most like word, or "" if none is
// similar enough: at most a third of its letters (but always one) may differ.
// It ignores case, and whether words are joined by hyphens, spaces or underscores.
func Nearest(word string, candidates []string) string {
	if len(word) > maxWord {
		return ""
	}
	fold := strings.NewReplacer("-", "_", " ", "_")
	word = fold.Replace(strings.ToLower(word))
	best, distance := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := edits(word, fold.Replace(strings.ToLower(c))); d < distance {
			best, distance = c, d
		}
	}
	return best
}

// edits returns the optimal string alignment distance: the number of letters to
// insert, remove, replace or swap with the next one that turns a into b.
func edits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
