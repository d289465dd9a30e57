package command_test

import (
	"testing"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
)

func TestMain(m *testing.M) { genvtest.Main(m) }
