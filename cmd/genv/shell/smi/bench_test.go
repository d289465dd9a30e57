package smi_test

import (
	"testing"

	"github.com/seed-3119e985/genv/cmd/genv/shell/smi"
)

// What the shim itself adds to nvidia-smi's own time, besides its start.
func BenchmarkTable(b *testing.B) {
	table, v := sample(b, "table-580-mig.constructed.txt"), view(1, 3)
	call, _ := smi.Parse(nil)
	for b.Loop() {
		if _, ok := call.Rewrite(table, v); !ok {
			b.Fatal("not understood")
		}
	}
}
