package schema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// kind is one of genv's files: its schema, and what reads it.
type kind struct {
	name     string
	schema   func() map[string]any
	read     func(text string) error
	compiled *jsonschema.Schema
}

var onHosts = sync.OnceValue(func() []*cli.Command { return fleet.OnHosts(command.Program{Getenv: os.Getenv}) })

func kinds(t *testing.T) []*kind {
	list := []*kind{
		{name: "policy", schema: policy.Schema, read: func(text string) error { return policy.Check("policy.yaml", []byte(text)) }},
		{name: "hosts", schema: inventory.Schema, read: readHosts},
		{name: "config", schema: func() map[string]any { return command.ConfigSchema(onHosts()) }, read: func(text string) error {
			return command.CheckConfig("/etc/genv/config.yaml", []byte(text), onHosts())
		}},
	}
	for _, k := range list {
		compiler := jsonschema.NewCompiler()
		data := proctest.ReadFile(t, k.path())
		document := proctest.Try(jsonschema.UnmarshalJSON(bytes.NewReader(data))).OK(t)
		require.NoError(t, compiler.AddResource(k.path(), document))
		k.compiled = proctest.Try(compiler.Compile(k.path())).OK(t)
	}
	return list
}

func (k *kind) path() string { return filepath.Join("../../../docs/schema", k.name+".json") }

// check validates a file by its schema.
func (k *kind) check(text string) error {
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil || document == nil { // comments alone
		return err
	}
	return k.compiled.Validate(document)
}

func readHosts(text string) error {
	file, err := os.CreateTemp("", "hosts*.yaml")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err = file.WriteString(text); err != nil {
		return err
	}
	_, _, err = inventory.Known(inventory.Selection{Hosts: []string{file.Name()}}, command.OpenAtOnce)
	return err
}

// TestSchemas: the files in docs/schema are what the readers of genv's files describe. UPDATE_GOLDEN=1 writes them.
func TestSchemas(t *testing.T) {
	for _, k := range kinds(t) {
		var now bytes.Buffer
		encoder := json.NewEncoder(&now)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		require.NoError(t, encoder.Encode(k.schema()))
		if os.Getenv("UPDATE_GOLDEN") != "" {
			require.NoError(t, os.WriteFile(k.path(), now.Bytes(), 0o600))
		}
		data := proctest.ReadFile(t, k.path())
		require.Equal(t, now.String(), string(data), "UPDATE_GOLDEN=1 go test ./cmd/genv/schema writes it")
	}
}

// TestSchemasAcceptTheExamples: each names its schema, and is valid by it; those of config.yaml with what they have as
// comments, too.
func TestSchemasAcceptTheExamples(t *testing.T) {
	comment := regexp.MustCompile(`(?m)^#(\w|  )`)
	for _, k := range kinds(t) {
		for path, schema := range map[string]string{
			"../../../" + k.name + ".example.yaml":   "docs/schema/",
			"../../../packaging/" + k.name + ".yaml": "/usr/share/doc/genv/docs/schema/",
		} {
			data, err := os.ReadFile(path)
			if k.name == "hosts" && strings.HasPrefix(path, "../../../packaging") {
				continue
			}
			require.NoError(t, err)
			first, _, _ := strings.Cut(string(data), "\n")
			require.Equal(t, "# yaml-language-server: $schema="+schema+k.name+".json", first, path)
			text := string(data)
			require.NoError(t, k.check(text), path)
			if k.name == "config" {
				require.NoError(t, k.check(comment.ReplaceAllString(text, "$1")), path)
			}
		}
	}
}

// TestSchemasAcceptWhatIsRead: whatever text in tests and documents genv reads as one of its files is valid.
func TestSchemasAcceptWhatIsRead(t *testing.T) {
	list := kinds(t)
	accepted := map[string]int{}
	for _, text := range writtenTexts(t) {
		for _, k := range list {
			if k.read(text) == nil {
				accepted[k.name]++
				require.NoError(t, k.check(text), "%s.yaml:\n%s", k.name, text)
			}
		}
	}
	for _, k := range list {
		require.Greater(t, accepted[k.name], 10, k.name)
	}
}

// writtenTexts are the texts in the repository's Go tests, scripts and documents that may be YAML.
func writtenTexts(t *testing.T) (texts []string) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```|\n-- [^\n]*\\.yaml --\n(.*?)(?:\n-- |$)")
	mayBe := regexp.MustCompile(`(?m)^\s*(- )?\{?["@\w-]+: ?|^\{`)
	require.NoError(t, filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || entry.IsDir():
			return err
		case strings.HasSuffix(path, "_test.go"):
			file := proctest.Try(parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)).OK(t)
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text := proctest.Try(strconv.Unquote(literal.Value)).OK(t)
					texts = append(texts, text)
				}
				return true
			})
		case strings.HasSuffix(path, ".md"), strings.HasSuffix(path, ".txt"), strings.HasSuffix(path, ".txtar"):
			data := proctest.ReadFile(t, path)
			for _, m := range block.FindAllStringSubmatch(string(data), -1) {
				texts = append(texts, m[1]+m[2])
			}
		}
		return nil
	}))
	slices.Sort(texts)
	return slices.DeleteFunc(slices.Compact(texts), func(text string) bool { return !mayBe.MatchString(text) })
}

// keyAt is a key of a schema: a file with it alone, in which %s is the key.
type keyAt struct {
	key, file string
	schema    map[string]any
}

// keysOf lists the keys of a schema.
func keysOf(schema map[string]any, file string) (list []keyAt) {
	alternatives, _ := schema["anyOf"].([]any)
	for _, each := range alternatives {
		list = append(list, keysOf(each.(map[string]any), file)...)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		list = append(list, keysOf(items, strings.Replace(file, "%s", "[%s]", 1))...)
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		list = append(list, keysOf(values, strings.Replace(file, "%s", "{name: %s}", 1))...)
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		value := properties[key].(map[string]any)
		list = append(list, keyAt{key, strings.Replace(file, "%s", "{%s: null}", 1), value})
		list = append(list, keysOf(value, strings.Replace(file, "%s", fmt.Sprintf("{%q: %%s}", key), 1))...)
	}
	return list
}

// TestSchemasHaveTheKeys: genv knows each key that a schema has. A key with another name is unknown to both.
func TestSchemasHaveTheKeys(t *testing.T) {
	for _, k := range kinds(t) {
		names := map[string]bool{}
		for _, at := range keysOf(k.schema(), "%s") {
			names[at.key] = true
			right, wrong := fmt.Sprintf(at.file, at.key), fmt.Sprintf(at.file, at.key+"x")
			if k.name == "hosts" && strings.Contains(right, `"groups"`) {
				continue
			}
			if err := k.read(right); err != nil {
				require.NotContains(t, err.Error(), "unknown key", right)
			}
			require.ErrorContains(t, k.read(wrong), "unknown key", wrong)
			require.ErrorContains(t, k.check(wrong), "additional properties", wrong)
			require.True(t, len(at.schema) > 0, "%s has no reader", right)
		}
		if k.name == "policy" {
			for _, setting := range append(enforce.Keys(), enforce.RuleWarns()...) {
				require.Contains(t, names, strings.TrimPrefix(setting.Key, enforce.WarnOfRule))
			}
		}
	}
}

// TestSchemasRefuse: an editor marks these.
func TestSchemasRefuse(t *testing.T) {
	byName := map[string]*kind{}
	for _, k := range kinds(t) {
		byName[k.name] = k
	}
	for _, test := range []struct{ kind, wrong, right string }{
		{"policy", "defaults: {non-env-proceses: true}", "defaults: {non-env-processes: count}"},
		{"policy", "defaults: {warn: soon}", "defaults: {warn: 10m}"},
		{"policy", "defaults: {warn: true}", "defaults: {warn: false}"},
		{"policy", "defaults: {warn: {for: 10}, rules: {}}", "defaults: {warn: {for: 10, rules: {env-memory: 1d}}}"},
		{"policy", "defaults: {max-devices-per-user: -1}", "defaults: {max-devices-per-user: false}"},
		{"policy", "overrides: {users: [bob]}", "overrides: [{users: [bob], set: {max-devices-per-user: 0}}]"},
		{"policy", "schedules: {night: [{day: mon}]}", "timezone: UTC\nschedules: {night: [{days: mon}]}"},
		{"policy", "mail: {password: secret}", "exempt: {processes: [Xorg, {name: gdm, user: root}]}"},
		{"hosts", "hosts: [{port: \"22\"}]", "hosts: [a, {name: b, port: 22, labels: {gpu: 1, x: true}}]"},
		{"hosts", "defaults: {ssh: putty}", "defaults: {ssh: openssh}\nhosts: [a]"},
		{"config", "enforce: {act-unrecorded: true}", "enforce: {hosts: [a, b], interval: 30}"},
		{"config", "fanout: [1, 2]", "fanout: 3"},
	} {
		k := byName[test.kind]
		require.Error(t, k.check(test.wrong), test.wrong)
		require.Error(t, k.read(test.wrong), test.wrong)
		require.NoError(t, k.check(test.right), test.right)
		require.NoError(t, k.read(test.right), test.right)
	}
}
