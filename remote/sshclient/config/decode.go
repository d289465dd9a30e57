package config

import (
	"fmt"
	"strings"

	"github.com/kevinburke/ssh_config"
)

// decode has the library read the selected lines, one keyword and one word per
// line, and returns an error where the result differs from the lines.
func (f *files) decode(selected []line) (raw, error) {
	var text strings.Builder
	var flat []line
	for _, l := range selected {
		for _, word := range l.words {
			flat = append(flat, line{place: l.place, keyword: l.keyword, words: []string{word}})
			fmt.Fprintf(&text, "%s %s\n", l.keyword, quoted(word))
		}
	}
	if known, ok := f.values[text.String()]; ok {
		return known, nil
	}
	values, err := library(text.String(), flat)
	if len(f.values) == maxDecoded {
		clear(f.values)
	}
	if err == nil {
		f.values[text.String()] = values // hosts without lines of their own select the same ones
	}
	return values, err
}

// maxDecoded is how many texts are kept decoded: where each host has its own, that helps none.
const maxDecoded = 256

// quoted quotes a word from which the library would strip spaces or quotes.
func quoted(word string) string {
	if strings.ContainsAny(word, " \t") && !strings.Contains(word, `"`) || strings.HasPrefix(word, `"`) && strings.HasSuffix(word, `"`) {
		return `"` + word + `"`
	}
	return word
}

func library(text string, flat []line) (raw, error) {
	read, err := ssh_config.DecodeBytes([]byte(text))
	if err != nil {
		return nil, &Error{Problem: "ssh_config: " + err.Error()}
	}
	values, at := raw{}, 0
	for _, node := range read.Hosts[0].Nodes {
		kv, ok := node.(*ssh_config.KV)
		if !ok {
			continue
		}
		if at == len(flat) || kv.Key != flat[at].keyword || kv.Value != flat[at].words[0] {
			break
		}
		values[kv.Key] = append(values[kv.Key], kv.Value)
		at++
	}
	if at < len(flat) || len(read.Hosts) != 1 {
		at = min(at, len(flat)-1)
		place := flat[at].place
		place.Problem = fmt.Sprintf("the value of %s cannot be read without ssh: %q", flat[at].keyword, flat[at].words[0])
		return nil, &place
	}
	return values, nil
}

// environmentSet refuses a ${NAME} that is not set, as ssh does.
func (f *files) environmentSet(selected []line) error {
	for _, l := range selected {
		for _, word := range l.words {
			rest := word
			if l.keyword == "identityagent" && strings.HasPrefix(word, "$") && !strings.HasPrefix(word, "${") {
				rest = "${" + word[1:] + "}"
			}
			for l.keyword != "proxycommand" {
				_, after, found := strings.Cut(rest, "${")
				name, tail, closed := strings.Cut(after, "}")
				if !found || !closed {
					break
				}
				if f.who.getenv(name) == "" {
					place := l.place
					place.Problem = fmt.Sprintf("the environment has no %s for %s", name, l.keyword)
					return &place
				}
				rest = tail
			}
		}
	}
	return nil
}
