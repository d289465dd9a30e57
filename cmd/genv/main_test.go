package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("GENV_AUDIT_LOG", "off"); err != nil { // or tests that run as root write into this machine's own
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removePrograms()
		os.Exit(code)
	}))
}

// result is what a command line printed, and its exit code.
type result struct {
	out, err string
	code     int
}

// genv runs a command line in this process, with nothing of a terminal.
func genv(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &out, err: &errs, getenv: os.Getenv, now: time.Now}
	code := p.run(ctx, append([]string{"genv"}, args...))
	return result{out: out.String(), err: errs.String(), code: code}
}
