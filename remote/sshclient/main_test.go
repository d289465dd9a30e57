package sshclient_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote"
)

func TestMain(m *testing.M) {
	if token := os.Getenv("GENV_TEST_TOKEN"); token != "" {
		serve(token)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := observed.print(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// needs skips a test that needs a missing program, and logs it; with CI=true that
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

// observed is the table of faults and what an administrator sees of them. It is
// written to the file that GENV_FAULT_TABLE names.
var observed table

type table struct {
	mu   sync.Mutex
	rows []string
}

func (o *table) last() string {
	if len(o.rows) == 0 {
		return ""
	}
	return o.rows[len(o.rows)-1]
}

func (o *table) print() error {
	name := os.Getenv("GENV_FAULT_TABLE")
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(file, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tCLASS\tOBSERVED")
	for _, row := range o.rows {
		fmt.Fprintln(w, row)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Close()
}

// requireClass fails unless err is of the class, and notes what was observed.
func requireClass(t testing.TB, class remote.Class, err error) {
	t.Helper()
	require.Error(t, err)
	observed.mu.Lock()
	if row := fmt.Sprintf("%s\t%s\t%s", t.Name(), remote.ClassOf(err), err); !strings.HasPrefix(observed.last(), t.Name()+"\t") {
		observed.rows = append(observed.rows, row)
	}
	observed.mu.Unlock()
	require.Equal(t, class, remote.ClassOf(err), "%v", err)
	require.NotEmpty(t, remote.ClassOf(err).NextStep())
}

// logTo is a logger that several goroutines may write to.
func logTo(w io.Writer) zerolog.Logger { return zerolog.New(zerolog.SyncWriter(w)) }
