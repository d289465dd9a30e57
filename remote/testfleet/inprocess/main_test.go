package inprocess_test

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

// helperVariable makes this test binary play a program: the genv of a machine,
// or a job.
const helperVariable = "GENV_SIM_TEST_HELPER"

// promptEnd spares a program with the race detector its second of waiting at
// its end.
const promptEnd = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "nvidia-smi" {
		os.Exit(gpus.Main(os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
	}
	if os.Getenv(helperVariable) != "" {
		os.Exit(helper(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

func helper(args []string) int {
	switch args[0] {
	case "args":
		fmt.Printf("%q\n", args[1:])
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "environ":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "exit":
		fmt.Fprintln(os.Stderr, "on stderr")
		status, _ := strconv.Atoi(args[1])
		return status
	case "kill-yourself":
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		time.Sleep(time.Minute)
	case "stay": // deaf to everything but SIGKILL
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
		fmt.Println(os.Getpid())
		time.Sleep(time.Minute)
	}
	return 0
}
