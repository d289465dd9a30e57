package user_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLLM: a model is served in an environment of its own, listed, and talked to. The server is
// constructed after Ollama's API documentation (testdata/llm/ollama).
func TestLLM(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(python); err != nil {
		t.Skip("the server in place of Ollama needs " + python)
	}
	stub, err := filepath.Abs("testdata/llm")
	require.NoError(t, err)
	s := newStation(t)
	s.env[0] += ":" + stub
	u := s.me()
	serve := u.command("genv", "llm", "serve", "--gpus", "1", "--host", "localhost", "llama3")
	stderr, err := serve.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, serve.Start())
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = serve.Process.Kill()
			_ = serve.Wait()
		}
	})
	lines := bufio.NewScanner(stderr)
	var said []string
	for lines.Scan() && !strings.Contains(lines.Text(), "is served at") {
		said = append(said, lines.Text())
	}
	require.Contains(t, strings.Join(said, "\n"), "Attached GPUs: 0\n")
	require.Contains(t, said, "ollama: success", "it was downloaded")
	require.Regexp(t, `^llama3 is served at http://localhost:\d+: genv llm attach llama3$`, lines.Text())

	listed := u.run("genv", "llm", "ps", "--format", "csv", "--no-header").Out
	require.Regexp(t, `^llama3,\d+,[^,]+,(\d+),[^,]+,[\d ]+\n$`, listed)
	require.Regexp(t, `^MODEL       PORT    CREATED              EID     USER            PID\(S\)\nllama3 `, u.run("genv", "llms").Out)
	require.Regexp(t, `"schema":"genv.llm/1".*"port":\d+.*"pids":\[\d+`, u.run("genv", "llm", "--format", "json").Out)
	require.Contains(t, u.run("genv", "envs", "--format", "csv").Out, "llm/llama3/")

	attach := u.command("genv", "llm", "attach", "llama3")
	attach.Stdin = strings.NewReader("one\n\ntwo\n")
	out, err := attach.Output()
	require.NoError(t, err)
	require.Equal(t, "one, on 0\ntwo, on 0\n", string(out))
	require.Contains(t, u.run("genv", "llm", "attach", "--port", "1", "llama3").Err, "no environment of this host serves llama3")
	require.NotZero(t, u.run("genv", "llm", "attach").Code)

	require.NoError(t, serve.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
	}
	_ = serve.Wait()
	ended = true
	require.Empty(t, u.run("genv", "llm", "ps", "--format", "csv", "--no-header").Out)
	require.NotContains(t, u.run("genv", "envs", "--format", "csv").Out, "llm/")
}
