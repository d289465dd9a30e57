package rules_test

import (
	"os"
	"testing"
)

// soaks skips a test that takes too long for anything but make soak.
func soaks(t *testing.T) {
	t.Helper()
	if os.Getenv("GENV_SOAK") == "" {
		t.Skip("set GENV_SOAK, as make soak does")
	}
}
