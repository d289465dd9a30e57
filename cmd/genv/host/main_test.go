package host_test

import (
	"testing"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/host"
)

func TestMain(m *testing.M) {
	host.ServeAndCrash()
	genvtest.Main(m)
}
