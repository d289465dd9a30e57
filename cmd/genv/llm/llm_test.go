package llm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// serve is a server whose answers are constructed after Ollama's API documentation: Ollama
// itself was not at hand. asked are the requests, with their bodies.
func serve(t *testing.T, answer func(path string, body string) (int, string)) (c Client, asked *[]string) {
	t.Helper()
	asked = new([]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*asked = append(*asked, r.Method+" "+r.URL.Path+" "+string(body))
		status, text := answer(r.URL.Path, string(body))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return Client{Port: port}, asked
}

func TestNames(t *testing.T) {
	require.Equal(t, "llm/llama3/11434", Served{"llama3", 11434}.Name())
	for name, want := range map[string]Served{
		"llm/llama3/11434": {"llama3", 11434}, "llm/hf.co/org/m:Q4/80": {"hf.co/org/m:Q4", 80},
		"llm/x": {Model: "x"}, // of genv before 1.4.1, at an unknown port
		"":      {}, "llama3": {}, "llm/": {}, "llm//1": {}, "llm/x/": {}, "llm/x/0": {}, "llm/x/65536": {}, "llm/x/-1": {}, "llm/x/y": {},
	} {
		s, ok := Of(&snapshot.Environment{Config: snapshot.EnvConfig{Name: name}})
		require.Equal(t, want != Served{}, ok, name)
		if ok {
			require.Equal(t, want, s)
			require.True(t, s.Port == 0 || s.Name() == name, name)
		}
	}
}

func TestChoose(t *testing.T) {
	models := []Model{{Served: Served{"x", 0}, UID: 1}, {Served: Served{"x", 80}, UID: 2}, {Served: Served{"x", 81}, UID: 1}, {Served: Served{"y", 82}, UID: 1}}
	require.Equal(t, 81, Choose(models, "x", 0, 1).Port, "one's own")
	require.Equal(t, 80, Choose(models, "x", 0, 3).Port, "the first")
	require.Equal(t, 80, Choose(models, "x", 80, 1).Port)
	require.Nil(t, Choose(models, "z", 0, 1))
	require.Nil(t, Choose(models[:1], "x", 0, 1), "where it listens is unknown")
}

func TestURL(t *testing.T) {
	for host, want := range map[string]string{
		"": "http://127.0.0.1:80", "0.0.0.0": "http://127.0.0.1:80", "::": "http://[::1]:80", "10.0.0.5": "http://10.0.0.5:80", "gpu-01": "http://gpu-01:80",
	} {
		require.Equal(t, want, Client{Host: host, Port: 80}.URL(), host)
	}
}

func TestFreePort(t *testing.T) {
	first, err := FreePort("127.0.0.1")
	require.NoError(t, err)
	require.GreaterOrEqual(t, first, DefaultPort)
	_, err = FreePort("192.0.2.1")
	require.ErrorContains(t, err, "192.0.2.1", "an address of another machine")
}

func TestLoadDownloadsWhatIsMissing(t *testing.T) {
	loads := 0
	c, asked := serve(t, func(path, _ string) (int, string) {
		switch path {
		case "/api/pull":
			return 200, `{"status":"pulling manifest"}` + "\n" + strings.Repeat(`{"status":"pulling abc","total":9,"completed":1}`+"\n", 3) + `{"status":"\u001b[2Jsuccess"}`
		case "/api/generate":
			if loads++; loads == 1 {
				return 404, `{"error":"model 'llama3' not found"}`
			}
		}
		return 200, `{"model":"llama3","response":"","done":true,"done_reason":"load"}`
	})
	var progress bytes.Buffer
	require.NoError(t, c.Load(t.Context(), "llama3", &progress))
	require.Equal(t, "ollama: pulling manifest\nollama: pulling abc\nollama: \\x1b[2Jsuccess\n", progress.String())
	load := `POST /api/generate {"keep_alive":-1,"model":"llama3","stream":false}`
	require.Equal(t, []string{load, `POST /api/pull {"model":"llama3"}`, load}, *asked)
}

func TestChat(t *testing.T) {
	c, asked := serve(t, func(string, string) (int, string) {
		return 200, `{"message":{"role":"assistant","content":"Hel"},"done":false}` + "\n" + `{"message":{"role":"assistant","content":"lo\n\u001b]0;x"},"done":true}` + "\n"
	})
	var out bytes.Buffer
	answer, err := c.Chat(t.Context(), "llama3", []Message{{Role: "user", Content: "Hi"}}, &out)
	require.NoError(t, err)
	require.Equal(t, "Hello\n\\x1b]0;x", out.String(), "nothing of it reaches the terminal unescaped")
	require.Equal(t, Message{Role: "assistant", Content: "Hello\n\x1b]0;x"}, answer)
	require.Equal(t, []string{`POST /api/chat {"messages":[{"role":"user","content":"Hi"}],"model":"llama3"}`}, *asked)
}

func TestFailures(t *testing.T) {
	for name, row := range map[string]struct {
		status   int
		text     string
		contains string
	}{
		"no model":         {404, `{"error":"model 'x' not found"}`, ErrModel.Error()},
		"no model, silent": {404, "", ErrModel.Error()},
		"an error":         {500, `{"error":"out of memory"}`, `error of Ollama: "out of memory"`},
		"in the middle":    {200, `{"message":{"content":"a"}}` + "\n" + `{"error":"killed"}`, `error of Ollama: "killed"`},
		"another server":   {200, "<html>", "not an answer of Ollama"},
		"another status":   {503, "busy", `status 503: "busy"`},
		"a long line":      {200, strings.Repeat("x", maxLine+1), "cut off"},
		"a long answer":    {200, strings.Repeat(fmt.Sprintf(`{"message":{"content":"%s"}}`+"\n", strings.Repeat("x", 1<<19)), 9), "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, func(string, string) (int, string) { return row.status, row.text })
			_, err := c.Chat(t.Context(), "x", nil, io.Discard)
			require.ErrorContains(t, err, row.contains)
		})
	}
}

func TestWaitReady(t *testing.T) {
	tries := 0
	c, _ := serve(t, func(string, string) (int, string) {
		if tries++; tries == 1 {
			return 503, ""
		}
		return 200, `{"version":"0.5.1"}`
	})
	require.NoError(t, c.WaitReady(t.Context()))
	require.Equal(t, 2, tries)
	ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, Client{Port: 1}.WaitReady(ended), context.DeadlineExceeded)
}
