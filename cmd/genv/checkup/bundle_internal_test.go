package checkup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

const plant = "hunter2"

func TestRedactRemoves(t *testing.T) {
	for _, text := range []string{
		"password: hunter2", "PASSWORD=hunter2", `"smtp_password": "hunter2"`, "passphrase = two words hunter2", "  api-key: hunter2",
		"Authorization: Bearer hunter2", "authorization: Basic x hunter2", "curl --token hunter2 -v", "sshpass -p x --password hunter2",
		"https://bob:hunter2@example.org", "https://hooks.example.org/services/hunter2", "https://example.org?x=hunter2", "ssh://bob:hunter2@host:22/",
		"DB_URL=hunter2", "env GENV_X='a hunter2' run", `FOO="hunter2 b"`, "Cookie: a=b; hunter2",
		"-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n-----END OPENSSH PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----\nhunter2, cut",
		"key xoxb-hunter2-123456789", "ghp_hunter2hunter2hunter2", "eyJhunter2hunter2.e30.x",
		"got 0A1b2C3d4E5f6G7h8I9jhunter2", "deadbeefdeadbeefdeadbeefdeadbeef"[:25] + "hunter2A",
	} {
		require.NotContains(t, redact(text), plant, text)
	}
}

func TestRedactKeeps(t *testing.T) {
	for _, text := range []string{
		"sudo: a password is required", "sudo wants a password for usage serve of /usr/local/bin/genv",
		"admin ALL=(root) NOPASSWD: /usr/local/bin/genv usage snapshot, /usr/local/bin/genv usage serve *",
		"SHA256:83VBdNaZg/uyA8zoKgVv77cW8r3it2ToYn4suxsDrh4 is the known one", "GPU-4f1b2c3d-aaaa-bbbb-cccc-1234567890ab",
		"no connection to 10.0.0.7:22: connection refused", "/var/tmp/genv of uid 1004 has mode 0755", "driver 550.163.01, 8 GPUs",
		"see https://example.org", "refuses user mallory: no key was accepted",
	} {
		require.Equal(t, text, redact(text))
	}
}

func TestPolicyKeepsRulesAndNoTexts(t *testing.T) {
	cleaned, err := cleanPolicy([]byte(`# hunter2
timezone: Europe/Berlin
defaults: {max-devices-per-user: 4, kill: false}
groups: {students: [alice, bob]}
hooks:
  - command: [/usr/local/bin/notify, --with, hunter2]
    timeout: 5s
  - webhook: https://chat.example.org/hooks/hunter2
mail:
  smtp: {host: mail, user: bob, password: hunter2, pin: 123456}
  template: "hunter2"
unheard-of: [hunter2, {x: hunter2}]
overrides:
  - users: [bob]
    set: {max-devices-per-user: 3, secret: hunter2}
`))
	require.NoError(t, err)
	require.NotContains(t, string(cleaned), plant)
	require.NotContains(t, string(cleaned), "123456")
	for _, kept := range []string{"Europe/Berlin", "max-devices-per-user: 4", "alice", "max-devices-per-user: 3", "command", "webhook", "unheard-of"} {
		require.Contains(t, string(cleaned), kept)
	}
	bomb := "a: &a [x]\n"
	for c := byte('b'); c < 'n'; c++ {
		bomb += fmt.Sprintf("%c: &%[1]c [%s]\n", c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 9))
	}
	for _, text := range []string{"hooks: [hunter2", "a: &hunter2 b", bomb, strings.Repeat("[", 100_000)} {
		_, err = cleanPolicy([]byte(text))
		require.Error(t, err)
		require.NotContains(t, err.Error(), plant)
	}
}

// contents are the files of a bundle.
func contents(t *testing.T, path string) map[string]string {
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	files := map[string]string{}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		files[header.Name] = string(data)
	}
}

// open opens a bundle as the flag does.
func open(t *testing.T, path string) (*Bundle, error) {
	flags := flag.NewFlagSet(t.Name(), flag.ContinueOnError)
	flags.String("bundle", path, "")
	return OpenBundle(cli.NewContext(nil, flags, nil), command.Program{Now: time.Now})
}

func TestBundle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	b, err := open(t, path)
	require.NoError(t, err)
	require.NoError(t, b.Write(t.Context(), "document", func(b *Bundle) {
		b.AddText("a.txt", "password: hunter2\nx\n")
		b.AddJSON("b.json", map[string]any{"n": 12345678901234567, "token": plant, "text": "see https://u:hunter2@h"})
		b.AddPolicy("p.yaml", []byte("a: [hunter2"), nil)
	}))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	files := contents(t, path)
	require.Equal(t, "password: [removed]\nx\n", files["genv-bundle/a.txt"])
	require.Contains(t, files["genv-bundle/b.json"], "12345678901234567")
	require.Equal(t, "left out: it is not valid YAML\n", files["genv-bundle/p.yaml"])
	for name, text := range files {
		require.NotContains(t, text, plant, name)
	}

	before, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = open(t, path)
	require.ErrorContains(t, err, "exists already")
	require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "target"), path+".link"))
	_, err = open(t, path+".link")
	require.ErrorContains(t, err, "exists already", "a link is not followed")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))

	other, err := open(t, path+".2")
	require.NoError(t, err)
	other.Abandon()
	require.NoFileExists(t, path+".2")
	unfit, err := open(t, path+".3")
	require.NoError(t, err)
	require.Error(t, unfit.Write(t.Context(), "document", func(b *Bundle) { b.AddJSON("c.json", make(chan int)) }))
	require.NoFileExists(t, path+".3", "what isn't complete doesn't stay")
}

// FuzzValues: JSON stays JSON, and what stands behind a key that sounds like a secret is gone.
func FuzzValues(f *testing.F) {
	f.Add(`{"a": ["b", 1, null], "password": {"x": ["hunter2"]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		_ = redact(text)
		var v any
		if json.Unmarshal([]byte(text), &v) != nil || strings.Contains(text, "kept") {
			return
		}
		data, err := json.Marshal(values(map[string]any{"password": map[string]any{"x": v, "y": "qqhunter2"}, "n": "kept"}))
		require.NoError(t, err)
		require.NotContains(t, string(data), "qqhunter2")
		require.Contains(t, string(data), `"n":"kept"`)
	})
}
