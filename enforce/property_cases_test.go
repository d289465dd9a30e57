package enforce_test

import (
	"os"
	"runtime/debug"
	"slices"
)

// cases is how many random cases of n a property test tries. The race detector makes each one
// seven times as slow, and finds nothing in functions without goroutines: a tenth has to do
// with it. Without it, and in `make soak`, all are tried.
func cases(n uint64) uint64 {
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) && os.Getenv("GENV_SOAK") == "" {
		return n / 10
	}
	return n
}
