package sshclient_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needs skips a test whose real part is missing, saying so; with CI=true that
// is a failure, so that nothing is passed over there.
func needs(t testing.TB, there bool, what string) {
	t.Helper()
	switch {
	case there:
	case os.Getenv("CI") == "true":
		t.Fatalf("this test needs %s, and CI must not skip it", what)
	default:
		t.Skipf("skipped: this test needs %s", what)
	}
}
