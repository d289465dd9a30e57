package agent

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const someJSON = "{\n  \"a\": {\"b\": \"}{\\\"\"},\n  \"c\": [{}]\n}\n"

func TestJSONIn(t *testing.T) {
	for name, noise := range map[string]string{
		"nothing": "", "a line": "Welcome\n", "no newline": "Welcome", "an empty object": "{}\n", "an object without a newline": `{"a": 1}`,
		"braces": "{ {{ }} {\n", "an open quote": "{\"", "an open object": "{\"a\":\n", "an object that is not closed": `{"a": {"b": 1},`, "many": strings.Repeat("{ ", 5000) + "\n",
		"not text": "\x00\xff\x1b[2J",
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, someJSON, string(lastOf(noise+someJSON)))
			require.False(t, json.Valid(lastOf(noise+someJSON+"x")), "noise after it is not skipped")
			require.False(t, json.Valid(lastOf(noise+someJSON[:len(someJSON)-2])), "one that is cut is not used in part")
		})
	}
	require.Nil(t, lastOf("Welcome\n"))
	require.Nil(t, lastOf(""))
}

func lastOf(output string) []byte {
	return jsonIn([]byte(output), func([]byte) {})
}

func TestObjectsBeforeTheLast(t *testing.T) {
	for output, want := range map[string][]string{
		someJSON: nil, "{ {\n" + someJSON: nil,
		"{}\n" + someJSON: {"{}\n"}, someJSON + someJSON: {someJSON},
		`{"a": {"b": 1}} x {"c": 2}` + someJSON: {`{"a": {"b": 1}} `, `{"c": 2}`},
	} {
		var got []string
		jsonIn([]byte(output), func(object []byte) { got = append(got, string(object)) })
		require.Equal(t, want, got, "%q", output)
	}
}

// TestJSONInHasAnEnd: a host that sends nothing but open objects costs a bounded
// effort, which would be the square of its length otherwise.
func TestJSONInHasAnEnd(t *testing.T) {
	for _, hostile := range []string{`{"a":`, `{"a":1,`, `{"a":1} x`} {
		require.False(t, json.Valid(lastOf(strings.Repeat(hostile, 1<<17))))
	}
}

func FuzzJSONIn(f *testing.F) {
	for _, noise := range []string{"", "Welcome", "{}\n", "{\"", "{ {{", `{"a":{`} {
		f.Add([]byte(noise))
	}
	f.Fuzz(func(t *testing.T, noise []byte) {
		found := lastOf(string(noise) + someJSON)
		require.True(t, bytes.HasSuffix(found, []byte("}\n")))
		if json.Valid(found) {
			require.True(t, bytes.HasSuffix(found, []byte(someJSON)), "never a part of it: %q", found)
		}
	})
}
