package mail_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// end ends a process that a test left behind.
func end(t *testing.T, pid string) {
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(n, syscall.SIGKILL) // if it is there
}
