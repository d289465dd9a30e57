package bundle

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
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
	if err := yaml.Unmarshal(data, &sections); err != nil {
		return nil, fmt.Errorf("it is not valid YAML") // the error would quote the file
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
