package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
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
	u := proctest.Try(url.Parse(server.URL)).OK(t)
	port := proctest.Try(strconv.Atoi(u.Port())).OK(t)
	return Client{Port: port}, asked
}

func TestNames(t *testing.T) {
	require.Equal(t, "llm/llama3/11434", (&ServedModel{Model: "llama3", Port: 11434}).Name())
	for name, want := range map[string]ServedModel{
		"llm/llama3/11434": {Model: "llama3", Port: 11434}, "llm/hf.co/org/m:Q4/80": {Model: "hf.co/org/m:Q4", Port: 80},
		"llm/x": {Model: "x"}, // of genv before 1.4.1, at an unknown port
		"":      {}, "llama3": {}, "llm/": {}, "llm//1": {}, "llm/x/": {}, "llm/x/0": {}, "llm/x/65536": {}, "llm/x/-1": {}, "llm/x/y": {},
	} {
		s, ok := Of(&snapshot.Environment{Config: snapshot.EnvConfig{Name: name}})
		require.Equal(t, want.Model != "", ok, name)
		if ok {
			require.Equal(t, want, s)
			require.True(t, s.Port == 0 || s.Name() == name, name)
		}
	}
}

func TestChoose(t *testing.T) {
	models := []ServedModel{{Model: "x", UID: 1}, {Model: "x", Port: 80, UID: 2}, {Model: "x", Port: 81, UID: 1}, {Model: "y", Port: 82, UID: 1}}
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
	first := proctest.Try(FreePort("127.0.0.1")).OK(t)
	require.GreaterOrEqual(t, first, DefaultPort)
	require.ErrorContains(t, proctest.Try(FreePort("192.0.2.1")).Err, "192.0.2.1", "an address of another machine")
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
	answer := proctest.Try(c.Chat(t.Context(), "llama3", []ChatMessage{{Role: "user", Content: "Hi"}}, &out)).OK(t)
	require.Equal(t, "Hello\n\\x1b]0;x", out.String(), "nothing of it reaches the terminal unescaped")
	require.Equal(t, ChatMessage{Role: "assistant", Content: "Hello\n\x1b]0;x"}, answer)
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
		"empty parts":      {200, strings.Repeat(`{}`+"\n", maxAnswer/partCost+1), "longer than"},
		"a long answer":    {200, strings.Repeat(fmt.Sprintf(`{"message":{"content":"%s"}}`+"\n", strings.Repeat("x", 1<<19)), 9), "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, func(string, string) (int, string) { return row.status, row.text })
			require.ErrorContains(t, proctest.Try(c.Chat(t.Context(), "x", nil, io.Discard)).Err, row.contains)
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

// TestNoRedirection: a server can't have the conversation sent to another one.
func TestNoRedirection(t *testing.T) {
	other, asked := serve(t, func(string, string) (int, string) { return 200, `{"message":{"content":"a"}}` })
	server := httptest.NewServer(http.RedirectHandler(other.URL()+"/api/chat", http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	var c Client
	proctest.Try(fmt.Sscan(port, &c.Port)).OK(t)
	require.ErrorContains(t, proctest.Try(c.Chat(t.Context(), "x", []ChatMessage{{Role: "user", Content: "secret"}}, io.Discard)).Err, "status 307")
	require.Empty(t, *asked)
}

// TestWhoListens: another user's server at the port of an environment gets no message.
func TestWhoListens(t *testing.T) {
	const (
		any4, loop4 = "00000000", "0100007F"
		any6, loop6 = "00000000000000000000000000000000", "0000000000000000FFFF00000100007F"
	)
	row := func(address string, port int, state string, uid int) string {
		return fmt.Sprintf("   0: %s:%04X %s:0000 %s 00000000:00000000 00:00000000 00000000 %5d        0 1606 1 0 100 0 0 10 0\n", address, port, any4, state, uid)
	}
	for name, want := range map[string]struct {
		tcp, tcp6 string
		foreign   bool
	}{
		"the owner":                    {tcp: row(loop4, 80, "0A", 1001)},
		"the owner, all addresses":     {tcp: row(any4, 80, "0A", 1001)},
		"root, as for a container":     {tcp: row(any4, 80, "0A", 0)},
		"nobody":                       {},
		"another user's other port":    {tcp: row(loop4, 81, "0A", 1002)},
		"another user's connection":    {tcp: row(loop4, 80, "01", 1002)},
		"another user on another card": {tcp: row("0A00000A", 80, "0A", 1002)},
		"not lines":                    {tcp: "x\n: : : : : : : :\n\n"},
		"another user":                 {tcp: row(loop4, 80, "0A", 1002), foreign: true},
		"another user, everywhere":     {tcp: row(any4, 80, "0A", 1002), foreign: true},
		"another user, IPv6":           {tcp6: row(any6, 80, "0A", 1002), foreign: true},
		"another user, mapped":         {tcp6: row(loop6, 80, "0A", 1002), foreign: true},
		"both":                         {tcp: row(any4, 80, "0A", 1001), tcp6: row(loop6, 80, "0A", 1002), foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			uid := snapshot.UID(1001)
			c := Client{Port: 80, Owner: &uid, sockets: t.TempDir()}
			for file, lines := range map[string]string{"tcp": want.tcp, "tcp6": want.tcp6} {
				require.NoError(t, os.WriteFile(filepath.Join(c.sockets, file), []byte("  sl  local_address rem_address   st\n"+lines), 0o600))
			}
			err := c.checkListener()
			require.Equal(t, want.foreign, errors.Is(err, ErrForeign), "%v", err)
			require.Equal(t, want.foreign, err != nil)
		})
	}
	require.Error(t, Client{Port: 80, Owner: new(snapshot.UID(1001)), sockets: t.TempDir()}.checkListener(), "unknown is not the owner")
	require.NoError(t, Client{Port: 80, sockets: t.TempDir()}.checkListener())
}

// TestARealListener: what the kernel shows of this process's own server.
func TestARealListener(t *testing.T) {
	c, asked := serve(t, func(string, string) (int, string) { return 200, `{"version":"1"}` })
	own, other := snapshot.UID(os.Getuid()), snapshot.UID(os.Getuid()+1)
	c.Owner = &own
	require.NoError(t, c.WaitReady(t.Context()))
	if c.Owner = &other; own != 0 {
		require.ErrorIs(t, c.call(t.Context(), "GET", "/", nil, nil), ErrForeign)
	}
	require.Len(t, *asked, 1)
}
