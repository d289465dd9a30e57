package config_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needsSSH skips a test that compares with OpenSSH where there is none; with
// CI=true that is a failure.
func needsSSH(t testing.TB) {
	t.Helper()
	if _, err := user.LookupId(strconv.Itoa(os.Getuid())); err != nil {
		t.Skip("skipped: OpenSSH does not run for a uid without an account:", err)
	}
	if _, err := exec.LookPath("ssh"); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs OpenSSH's ssh, and CI must not skip it")
	}
	t.Skip("skipped: this test needs OpenSSH's ssh")
}

func write(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// bySSH resolves a query by ssh alone, which a Match line is left to.
func bySSH(t testing.TB, file string, q config.Query) (config.HostConfig, error) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return config.New(config.ResolverOptions{File: write(t, string(text)+"\nMatch all\n")}).Resolve(t.Context(), q)
}

// both resolves a query by the local reader alone and by ssh alone.
func both(t testing.TB, file string, q config.Query) (local, openssh config.HostConfig, localErr, opensshErr error) {
	t.Helper()
	local, localErr = config.New(config.ResolverOptions{File: file, SSH: "none"}).Resolve(t.Context(), q)
	openssh, opensshErr = bySSH(t, file, q)
	return withoutRareDefaults(local), withoutRareDefaults(openssh), localErr, opensshErr
}

// withoutRareDefaults leaves out the default keys and algorithms that only some
// versions of ssh list, and the order of ciphers, which OpenSSH 10 has changed.
func withoutRareDefaults(s config.HostConfig) config.HostConfig {
	var kept []string
	for _, name := range s.IdentityFiles {
		if !strings.HasSuffix(name, "/.ssh/id_xmss") && !strings.HasSuffix(name, "/.ssh/id_dsa") {
			kept = append(kept, name)
		}
	}
	s.IdentityFiles = kept
	for i, item := range s.ProxyJump { // ssh writes addresses in brackets
		if hop, err := config.ParseHop(item); err == nil {
			s.ProxyJump[i] = fmt.Sprint(hop)
		}
	}
	rare := func(name string) bool { return name == "mlkem768x25519-sha256" || strings.HasPrefix(name, "ssh-dss") }
	for _, names := range []*[]string{&s.KexAlgorithms, &s.HostKeyAlgorithms, &s.PubkeyAcceptedAlgorithms, &s.CASignatureAlgorithms} {
		*names = slices.DeleteFunc(slices.Clone(*names), rare)
	}
	s.Ciphers = slices.Sorted(slices.Values(s.Ciphers))
	return s
}
