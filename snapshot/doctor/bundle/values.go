package bundle

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

var secretKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)pass|pwd|secret|token|key|auth|credential|cookie|webhook|url|header|(?:^|_)env$|environ|command|smtp|sendmail`)
})

// Values removes secrets from decoded JSON or YAML: texts under a key that sounds like a
// secret, and whatever Redact removes from other texts. Numbers and truth values stay.
func Values(value any) any {
	switch v := value.(type) {
	case map[string]any:
		cleaned := make(map[string]any, len(v))
		for name, inner := range v {
			if secretKey().MatchString(name) {
				inner = withoutTexts(inner)
			}
			cleaned[Redact(name)] = Values(inner)
		}
		return cleaned
	case []any:
		cleaned := make([]any, len(v))
		for i := range v {
			cleaned[i] = Values(v[i])
		}
		return cleaned
	case string:
		return Redact(v)
	case bool, nil, int, int64, uint64, float64, json.Number:
		return value
	}
	return Removed
}

// withoutTexts removes all texts, and numbers, which may be secrets too.
func withoutTexts(value any) any {
	switch v := value.(type) {
	case map[string]any:
		cleaned := make(map[string]any, len(v))
		for name, inner := range v {
			cleaned[name] = withoutTexts(inner)
		}
		return cleaned
	case []any:
		cleaned := make([]any, len(v))
		for i := range v {
			cleaned[i] = withoutTexts(v[i])
		}
		return cleaned
	case bool, nil:
		return value
	}
	return Removed
}

// Policy removes secrets from a policy file: the parts that decide about rules stay, and of
// all others, such as hooks, only the keys. Comments are dropped.
func Policy(data []byte) ([]byte, error) {
	var sections map[string]any
	// The first parser refuses what would make the second one use all memory, such as aliases
	// of aliases. Their errors would quote the file.
	if strictyaml.Parse("", data).Err() != nil || yaml.Unmarshal(data, &sections) != nil {
		return nil, errors.New("it is not valid YAML")
	}
	harmless := map[string]bool{
		"timezone": true, "defaults": true, "overrides": true, "groups": true, "schedules": true,
		"exempt": true, "unprotected": true, "limits": true, "unreachable": true, "tell-users": true,
	}
	for name, section := range sections {
		if !harmless[name] {
			sections[name] = withoutTexts(section)
		}
	}
	return yaml.Marshal(Values(sections))
}

// document is a value as JSON without secrets.
func document(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return nil, err
	}
	cleaned, err := json.MarshalIndent(Values(plain), "", "  ")
	return append(cleaned, '\n'), err
}
