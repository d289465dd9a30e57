package web_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless chromium that is driven over a pipe (Chrome DevTools Protocol:
// JSON messages that end with a zero byte).
type browser struct {
	t  *testing.T
	to *os.File

	mu      sync.Mutex
	last    int
	answers map[int]chan reply
	errors  []string // of consoles and of the content security policy
}

// reply is what a browser answers.
type reply struct{ Result, Error json.RawMessage }

// startChromium starts a browser, which ends with the test.
func startChromium(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	theirs, to, err := os.Pipe()
	require.NoError(t, err)
	from, output, err := os.Pipe()
	require.NoError(t, err)
	c := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	c.ExtraFiles = []*os.File{theirs, output}
	require.NoError(t, c.Start())
	_, _ = theirs.Close(), output.Close()
	b := &browser{t: t, to: to, answers: make(map[int]chan reply)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(bufio.NewReader(from))
	}()
	t.Cleanup(func() {
		_ = to.Close() // which ends the browser
		timer := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		timer.Stop()
		_ = from.Close()
		<-read
	})
	return b
}

func (b *browser) read(from *bufio.Reader) {
	for {
		text, err := from.ReadBytes(0)
		if err != nil {
			return
		}
		var message struct {
			ID     int
			Method string
			Params json.RawMessage
			reply
		}
		if json.Unmarshal(text[:len(text)-1], &message) != nil {
			continue
		}
		b.mu.Lock()
		if message.Method == "Log.entryAdded" && strings.Contains(string(message.Params), `"level":"error"`) || message.Method == "Runtime.exceptionThrown" {
			b.errors = append(b.errors, string(message.Params))
		}
		if answer := b.answers[message.ID]; answer != nil {
			delete(b.answers, message.ID)
			answer <- message.reply
		}
		b.mu.Unlock()
	}
}

// call calls a method, of a tab or of the browser.
func (b *browser) call(session, method string, parameters, result any) {
	b.t.Helper()
	answer := b.ask(session, method, parameters)
	require.Empty(b.t, string(answer.Error), method)
	if result != nil {
		require.NoError(b.t, json.Unmarshal(answer.Result, result), method)
	}
}

func (b *browser) ask(session, method string, parameters any) (r reply) {
	b.t.Helper()
	answer := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.answers[id] = answer
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method, "params": parameters}
	if session != "" {
		message["sessionId"] = session
	}
	text, err := json.Marshal(message)
	require.NoError(b.t, err)
	_, err = b.to.Write(append(text, 0))
	require.NoError(b.t, err)
	select {
	case r = <-answer:
	case <-time.After(time.Minute):
		require.FailNow(b.t, "no answer", method)
	}
	return r
}

// problems are the errors since the last call.
func (b *browser) problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.errors
	b.errors = nil
	return list
}

// tab is a page in a browser.
type tab struct {
	*browser
	session string
}

// how a page is looked at.
type look struct {
	width, height int
	dark, scripts bool
}

type object = map[string]any

// open opens a page.
func (b *browser) open(url string, l look) *tab {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("", "Target.createTarget", object{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached)
	page := &tab{b, attached.SessionID}
	for _, step := range []struct {
		method     string
		parameters object
	}{
		{"Page.enable", object{}},
		{"Runtime.enable", object{}},
		{"Log.enable", object{}},
		{"Emulation.setScriptExecutionDisabled", object{"value": !l.scripts}},
	} {
		b.call(page.session, step.method, step.parameters, nil)
	}
	page.resize(l)
	b.call(page.session, "Page.navigate", object{"url": url}, nil)
	page.wait(`document.readyState === "complete" && location.href !== "about:blank"`)
	return page
}

// resize gives the page another size and theme.
func (p *tab) resize(l look) {
	theme := "light"
	if l.dark {
		theme = "dark"
	}
	p.call(p.session, "Emulation.setDeviceMetricsOverride", object{"width": l.width, "height": l.height, "deviceScaleFactor": 1, "mobile": false}, nil)
	p.call(p.session, "Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": theme}}}, nil)
}

// evaluate returns what an expression is.
func (p *tab) evaluate(expression string, result any) {
	p.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	p.call(p.session, "Runtime.evaluate", object{"expression": expression, "returnByValue": true}, &answer)
	require.Empty(p.t, string(answer.ExceptionDetails), expression)
	require.NoError(p.t, json.Unmarshal(answer.Result.Value, result), "%s: %s", expression, answer.Result.Value)
}

// wait waits until an expression is true. While a page replaces another one, it has no value.
func (p *tab) wait(expression string) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		answer := p.ask(p.session, "Runtime.evaluate", object{"expression": "!!(" + expression + ")", "returnByValue": true})
		if strings.Contains(string(answer.Result), `"value":true`) {
			return
		}
		require.True(p.t, time.Now().Before(end), "%s: %s%s", expression, answer.Result, answer.Error)
	}
}

// picture writes what the page looks like; whole also what is below.
func (p *tab) picture(path string, whole bool) {
	var shot struct{ Data string }
	p.call(p.session, "Page.captureScreenshot", object{"captureBeyondViewport": whole, "format": "png"}, &shot)
	content, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(path, content, 0o644))
}

func (p *tab) close() { p.call(p.session, "Page.close", object{}, nil) }

func (l look) String() string { return fmt.Sprintf("%d×%d dark=%t", l.width, l.height, l.dark) }
