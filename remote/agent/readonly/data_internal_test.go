package readonly

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMarked(t *testing.T) {
	args := marked("printf", "%s", "0, GPU\ngenv-data\n")
	out, err := exec.Command(args[0], args[1:]...).Output()
	require.NoError(t, err)
	for _, noise := range []string{"", "Welcome", "Welcome\n", "{}\n"} {
		require.Equal(t, "0, GPU\ngenv-data\n", string(dataIn(append([]byte(noise), out...))))
	}
	require.Equal(t, "0, GPU\n", string(dataIn([]byte("0, GPU\n"))))
}
