package enforce_test

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

// cases is how many random cases of n a property test tries. The race detector makes each one
// seven times as slow, and finds little where there are few goroutines: a tenth has to do
// with it. Without it, and in `make soak`, all are tried.
func cases(n uint64) uint64 {
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) && os.Getenv("GENV_SOAK") == "" {
		return n / 10
	}
	return n
}

// soaks skips a test that takes too long for anything but make soak.
func soaks(t *testing.T) {
	t.Helper()
	if os.Getenv("GENV_SOAK") == "" {
		t.Skip("set GENV_SOAK, as make soak does")
	}
}
