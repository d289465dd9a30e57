package local_test

import (
	"github.com/seed-3119e985/genv/enforce/local"
	snapshotlocal "github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// The real parts fit.
var (
	_ local.Inspector  = (*snapshotlocal.Collector)(nil)
	_ local.StateFiles = (*disk.Store)(nil)
)
