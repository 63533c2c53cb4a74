package docs

import "strings"

// Commands returns the simple commands of a shell text, each as its words without quotes. The words
// of a command substitution are one word. Assignments before a command and redirections are left
// out.
func Commands(text string) (commands [][]string) {
	var (
		words   []string
		word    strings.Builder
		started bool // a word, which may be empty
		skip    bool // the next word is the file of a redirection
	)
	endWord := func() {
		text := word.String()
		assigns := len(words) == 0 && assignment(text)
		if started && !skip && !assigns {
			words = append(words, text)
		}
		if started {
			skip = false
		}
		started = false
		word.Reset()
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			if text[i] != '\n' {
				started = true
				word.WriteByte(text[i])
			}
		case c == '\'' || c == '"':
			n := strings.IndexByte(text[i+1:], c)
			if n < 0 {
				n = len(text) - i - 1
			}
			started = true
			word.WriteString(text[i+1 : i+1+n])
			i += n + 1
		case c == '$' && strings.HasPrefix(text[i:], "$("):
			n := closing(text[i+1:])
			commands = append(commands, Commands(text[i+2:i+n])...)
			started = true
			word.WriteString(text[i : i+1+n])
			i += n
		case c == '#' && !started:
			n := strings.IndexByte(text[i:], '\n')
			if n < 0 {
				n = len(text) - i
			}
			i += n - 1
		case c == ' ' || c == '\t':
			endWord()
		case c == '>' || c == '<':
			if digits := word.String(); strings.Trim(digits, "0123456789") == "" {
				word.Reset()
				started = false
			}
			endWord()
			for i+1 < len(text) && strings.IndexByte("<>&", text[i+1]) >= 0 {
				i++
			}
			skip = true
		case strings.IndexByte("\n;|&(){}", c) >= 0 && !started || strings.IndexByte("\n;|&()", c) >= 0:
			endCommand()
		default:
			started = true
			word.WriteByte(c)
		}
	}
	endCommand()
	return commands
}

// assignment reports whether a word is NAME=VALUE.
func assignment(word string) bool {
	name, _, found := strings.Cut(word, "=")
	return found && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// closing returns how long a text is that begins with a parenthesis, up to its end.
func closing(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// Sluice returns what follows the program's name in a command that runs it, and whether it does.
func Sluice(command []string) (args []string, ok bool) {
	for _, wrapper := range []string{"nohup", "exec", "sudo", "time", "then", "do", "if", "while", "until"} {
		if len(command) > 0 && command[0] == wrapper {
			command = command[1:]
		}
	}
	switch {
	case len(command) > 0 && (command[0] == "sluice" || strings.HasSuffix(command[0], "/sluice")):
		return command[1:], true
	case len(command) > 2 && command[0] == "go" && command[1] == "run" && command[2] == "./cmd/sluice":
		return command[3:], true
	case len(command) > 2 && command[0] == "go" && command[1] == "run" && command[2] == "./cmd/sluice/demo": // has flags of sluice demo
		return append([]string{"demo"}, command[3:]...), true
	}
	return nil, false
}
