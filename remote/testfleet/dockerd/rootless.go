package dockerd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// rootlessScript gives the user subordinate uids, in accounts of the namespace's own, and
// becomes what dockerd-rootless.sh of Docker becomes, without a network.
const rootlessScript = `set -e
for name in passwd group subuid subgid; do mount --bind "$1/$name" "/etc/$name"; done
dir=$1 uid=$2
shift 2
cd /
exec setpriv --reuid "$uid" --regid "$uid" --clear-groups env -u DOCKER_HOST HOME="$dir/home" XDG_RUNTIME_DIR="$dir/run" \
  rootlesskit --net=host --copy-up=/etc --copy-up=/run --propagation=rslave sh -c 'rm -f /run/docker /run/containerd /run/xtables.lock
exec dockerd --rootless --data-root "$HOME/data" --exec-root "$XDG_RUNTIME_DIR/exec" -H "unix://$XDG_RUNTIME_DIR/docker.sock" -p "$XDG_RUNTIME_DIR/docker.pid" \
  --iptables=false --bridge=none --storage-driver=vfs "$@"' dockerd "$@"`

// RequireRootless is Require for StartRootless.
func RequireRootless(t testing.TB) {
	t.Helper()
	Require(t)
	proctest.NeedPrograms(t, "rootlesskit", "newuidmap", "setpriv")
}

// StartRootless starts the Docker of an ordinary user, in a user namespace that the user
// makes with rootlesskit, and makes the image. Containers have the uid, and from firstSubuid
// on 65,536 others. Everything ends with the test.
func StartRootless(t testing.TB, uid, firstSubuid int, flags ...string) *Daemon {
	t.Helper()
	RequireRootless(t)
	dir, err := os.MkdirTemp("/tmp", "genv-rootless-") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	d := &Daemon{t: t, dir: dir, host: "unix://" + filepath.Join(dir, "run/docker.sock")}
	subordinate := fmt.Sprintf("rootless:%d:65536\n", firstSubuid)
	for name, add := range map[string]string{
		"passwd": fmt.Sprintf("rootless:x:%d:%d::%s/home:/bin/sh\n", uid, uid, dir), "group": fmt.Sprintf("rootless:x:%d:\n", uid),
		"subuid": subordinate, "subgid": subordinate,
	} {
		known, err := os.ReadFile("/etc/" + name)
		require.NoError(t, err, "the package uidmap makes subuid and subgid")
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), append(known, add...), 0o644))
	}
	for _, name := range []string{"home", "run"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.Chown(filepath.Join(dir, name), uid, uid))
	}
	d.start(rootlessScript, append([]string{"sh", dir, fmt.Sprint(uid)}, flags...)...)
	return d
}
