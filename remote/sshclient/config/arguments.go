package config

import "strings"

// splitArguments splits a command as ssh does for KnownHostsCommand, without a
// shell: at spaces and tabs outside quotes; a backslash protects quotes, itself
// and, outside quotes, a space. It returns false if a quote is not closed.
func splitArguments(text string) (arguments []string, ok bool) {
	var word strings.Builder
	inWord, quote := false, byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t'):
			if inWord {
				arguments = append(arguments, word.String())
			}
			word.Reset()
			inWord = false
			continue
		case c == '\\' && i+1 < len(text) && (strings.IndexByte(`'"\`, text[i+1]) >= 0 || quote == 0 && text[i+1] == ' '):
			i++
			word.WriteByte(text[i])
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote != 0 && c == quote:
			quote = 0
		default:
			word.WriteByte(c)
		}
		inWord = true
	}
	if inWord {
		arguments = append(arguments, word.String())
	}
	return arguments, quote == 0
}
