package user_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWhatOneMachineFreesForReservations: `genv enforce` alone has the service know who may reserve, as soon as somebody
// asks, and takes from others what is reserved.
func TestWhatOneMachineFreesForReservations(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.serve()
	require.NoError(t, os.WriteFile(s.path("policy.yaml"), []byte("defaults: {warn: {rules: {reservations: 3s}}}\n"+
		"reservations: [{users: [\"%sshd\"], gpus: 6, longest: 3h}]\n"), 0o644))
	alice, bob := s.named()
	hers, his := alice.open("bash"), bob.open("bash")
	require.Equal(t, said{text: "Attached GPUs 0, 1, 2, 3 (H100 80GB HBM3)\n"}, his.sayAll("genv activate --id his --gpus 4"))
	require.Contains(t, hers.sayAll("genv reserve --gpus 6 --for 1h").text, "only root may reserve GPUs while no policy is enforced here")
	cmd := s.admin().command("genv", "enforce", "--interval", "1h", "--policy", s.path("policy.yaml"), "--state-dir", s.path("admin"))
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
	refused := ""
	require.Eventually(t, func() bool {
		refused = his.sayAll("genv reserve --gpus 1 --for 1h").text
		return !strings.Contains(refused, "while no policy is enforced here")
	}, 30*time.Second, 50*time.Millisecond)
	require.Contains(t, refused, "the policy lets you reserve nothing here")
	require.Contains(t, hers.sayAll("genv reserve --gpus 7 --for 1h").text, "at most 6 GPUs")
	begun := time.Now()
	require.Regexp(t, `^Reserved: 6 GPUs from .* \(1h\), as [0-9a-f]{8}\n$`, hers.sayAll("genv reserve --gpus 6 --for 1h").text)
	require.Contains(t, his.sayAll("genv attach --count 5").text, "6 GPUs of this host are reserved by sshd, until")
	require.Equal(t, "Environment is active (his)\nAttached to GPUs at indices 0,1,2,3\n", statusOf(his), "he is warned first")
	require.Eventually(t, func() bool {
		return strings.HasSuffix(statusOf(his), "Environment is active (his)\nAttached to GPUs at indices 2,3\n")
	}, 30*time.Second, 50*time.Millisecond, "what is reserved is seen at once, and not at the next look")
	require.GreaterOrEqual(t, time.Since(begun), 3*time.Second)
	require.Contains(t, his.sayAll("genv notices").text, "reserved")
	require.Equal(t, said{text: "Attached GPUs 0, 1, 4, 5, 6, 7 (H100 80GB HBM3)\n"}, hers.sayAll("genv activate --id hers --gpus 6"))
}
