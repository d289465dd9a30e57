package enforcement_test

import (
	"testing"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) {
	proctest.RunStall()
	genvtest.Main(m)
}
