package proctest_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestAProgramRunsThatIsWrittenWhileOthersStart(t *testing.T) {
	var group errgroup.Group
	for range 4 {
		program := filepath.Join(t.TempDir(), "program")
		group.Go(func() error {
			for range 50 {
				if err := proctest.WriteProgram(program, []byte("#!/bin/sh\n")); err != nil {
					return err
				}
				if err := exec.Command(program).Run(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}
