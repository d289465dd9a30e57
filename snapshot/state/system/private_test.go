package system

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsPrivate(t *testing.T) {
	const root = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	for name, tt := range map[string]struct {
		line string
		want bool
	}{
		"nothing of its own":   {"", false},
		"systemd":              {"90 22 8:1 /var/tmp/systemd-private-ab-x.service-cd/tmp /var/tmp rw - ext4 /dev/sda1 rw\n", true},
		"pam_namespace":        {"90 22 8:1 /var/tmp/tmp-inst/alice /var/tmp rw - ext4 /dev/sda1 rw\n", true},
		"a file system":        {"90 22 8:2 / /var/tmp rw - ext4 /dev/sda2 rw\n", false},
		"a subvolume":          {"90 22 0:31 /@/var/tmp /var/tmp rw - btrfs /dev/sda2 rw\n", false},
		"a subvolume above it": {"90 22 0:31 /@var /var rw - btrfs /dev/sda2 rw\n", false},
		"a line that is none":  {"90 22\n", false},
	} {
		require.Equal(t, tt.want, isPrivate(root+tt.line, "/var/tmp"), name)
	}
}
