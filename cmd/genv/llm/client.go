// Package llm talks to Ollama's HTTP API, and reads the names of the environments in which `genv llm serve` runs it.
//
//	client := llm.Client{Port: 11434}
//	if err := client.WaitReady(ctx); err == nil {
//		err = client.Load(ctx, "llama3", os.Stderr)
//	}
//
// A name is a claim of the environment's user, as is what answers at a port: both are bounded and made printable.
package llm

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ErrModel means that the server lacks the model.
var ErrModel = errors.New("the server does not have this model")

// Client talks to an Ollama of this machine.
type Client struct {
	Host  string // the server's interface; empty for the loopback
	Port  int
	Owner *snapshot.UID // who may listen at the loopback besides root; nil for anyone

	sockets string // instead of /proc/net
}

// ChatMessage is a message of a conversation.
type ChatMessage struct {
	Role    string `json:"role"` // user, assistant or system
	Content string `json:"content"`
}

// URL is the server's address.
func (c Client) URL() string {
	host := c.Host
	switch host { // a server at all interfaces is asked at the loopback
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(c.Port))
}

// direct ignores proxies and redirections, so that only this machine gets a conversation.
var direct = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// WaitReady waits until the server answers. Its error is the context's.
func (c Client) WaitReady(ctx context.Context) error {
	for {
		if err := c.call(ctx, "GET", "/api/version", nil, func([]byte) error { return nil }); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Load makes the server load a model and keep it. It first downloads a missing model, and prints that on progress.
func (c Client) Load(ctx context.Context, model string, progress io.Writer) error {
	load := map[string]any{"model": model, "keep_alive": -1, "stream": false}
	err := c.call(ctx, "POST", "/api/generate", load, nil)
	if !errors.Is(err, ErrModel) {
		return err
	}
	last := ""
	err = c.call(ctx, "POST", "/api/pull", map[string]any{"model": model}, func(line []byte) error {
		var step struct{ Status string }
		if err := json.Unmarshal(line, &step); err != nil {
			return garbled(line)
		}
		if step.Status != last { // repeated for each megabyte
			last = step.Status
			fmt.Fprintf(progress, "ollama: %s\n", text.Shorten(text.Printable(step.Status), 120))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.call(ctx, "POST", "/api/generate", load, nil)
}

// Chat sends a conversation, and returns the answer. It writes parts as they come.
func (c Client) Chat(ctx context.Context, model string, messages []ChatMessage, out io.Writer) (ChatMessage, error) {
	answer := ChatMessage{Role: "assistant"}
	request := map[string]any{"model": model, "messages": messages}
	size := 0
	err := c.call(ctx, "POST", "/api/chat", request, func(line []byte) error {
		var part struct{ Message ChatMessage }
		if err := json.Unmarshal(line, &part); err != nil {
			return garbled(line)
		}
		if size += partCost + len(part.Message.Content); size > maxAnswer {
			return fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
		}
		answer.Content += part.Message.Content
		_, err := io.WriteString(out, text.PrintableLines(part.Message.Content))
		return err
	})
	return answer, err
}

const (
	maxLine   = 1 << 20
	maxAnswer = 4 << 20
	partCost  = 16 // counted for each part: empty ones could be endless
)

// call sends a request, and calls each, if set, for each line of the answer. A line with an error ends it.
func (c Client) call(ctx context.Context, method, path string, request any, each func(line []byte) error) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, c.URL()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err := c.checkListener(); err != nil {
		return err
	}
	response, err := direct.Do(r)
	if err != nil {
		return fmt.Errorf("ask Ollama: %w", err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if err := failure(response.StatusCode, lines.Bytes()); err != nil {
			return err
		}
		if each == nil {
			continue
		}
		if err := each(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the answer of Ollama was cut off: %w", err)
	}
	return failure(response.StatusCode, nil)
}

// failure is the error in a line or status of an answer.
func failure(status int, line []byte) error {
	var said struct{ Error string }
	_ = json.Unmarshal(line, &said) // other lines have no error
	switch {
	case status == http.StatusNotFound:
		return fmt.Errorf("%w (%s)", ErrModel, text.Quoted(said.Error, 200))
	case said.Error != "":
		return fmt.Errorf("error of Ollama: %s", text.Quoted(said.Error, 200))
	case status != http.StatusOK:
		return fmt.Errorf("answer of Ollama with status %d: %s", status, text.Quoted(string(line), 200))
	}
	return nil
}

func garbled(line []byte) error {
	return fmt.Errorf("this is not an answer of Ollama: %s", text.Quoted(string(line), 80))
}

// Converse sends each line of in as a message, with all earlier ones, and writes the answers, until in ends or one
// fails.
func (c Client) Converse(ctx context.Context, model string, in io.Reader, out io.Writer) error {
	var conversation []ChatMessage
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		conversation = append(conversation, ChatMessage{Role: "user", Content: lines.Text()})
		answer, err := c.Chat(ctx, model, conversation, out)
		if err != nil {
			return err
		}
		fmt.Fprintln(out)
		conversation = append(conversation, answer)
	}
	return lines.Err()
}

// ServedModel is a model that an environment claims to serve.
type ServedModel struct {
	Model   string            `json:"model"`
	Port    int               `json:"port,omitzero"` // missing if it is unknown
	EID     snapshot.EnvID    `json:"eid"`
	UID     snapshot.UID      `json:"uid"`
	User    snapshot.Username `json:"user"`
	PIDs    []snapshot.PID    `json:"pids"`
	Created snapshot.Date     `json:"-"`
}

// Models are the models of a host's environments, never nil.
func Models(environments []snapshot.Environment) []ServedModel {
	list := []ServedModel{}
	for i := range environments {
		e := &environments[i]
		if s, ok := Of(e); ok {
			s.EID, s.UID, s.User, s.Created = e.EID, e.UID, e.Username, e.Creation
			s.PIDs = append([]snapshot.PID{}, e.PIDs...)
			list = append(list, s)
		}
	}
	return list
}

// Choose is the first server of a model, preferably the user's own, at a port unless that is 0; nil for none.
func Choose(models []ServedModel, model string, port int, uid snapshot.UID) (chosen *ServedModel) {
	for i := range models {
		m := &models[i]
		if m.Model != model || m.Port == 0 || port != 0 && m.Port != port {
			continue
		}
		if m.UID == uid {
			return m
		}
		if chosen == nil {
			chosen = m
		}
	}
	return chosen
}

// ErrForeign means that another user than the environment's serves the port.
var ErrForeign = errors.New("another user's process listens there")

// checkListener refuses a loopback port on which a user other than the owner and root listens. Any error but ErrForeign
// means unknown.
func (c Client) checkListener() error {
	if c.Owner == nil {
		return nil
	}
	for _, name := range []string{"tcp", "tcp6"} {
		file, err := os.Open(filepath.Join(cmp.Or(c.sockets, "/proc/net"), name))
		if errors.Is(err, fs.ErrNotExist) && name == "tcp6" { // a kernel without IPv6
			continue
		}
		if err != nil {
			return fmt.Errorf("who listens on port %d: %w", c.Port, err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() && err == nil {
			if uid, ok := listens(lines.Text(), c.Port); ok && uid != *c.Owner && uid != 0 {
				err = fmt.Errorf("%s: %w (uid %d), not the user of the environment (uid %d)", c.URL(), ErrForeign, uid,
					*c.Owner)
			}
		}
		if err := errors.Join(err, lines.Err(), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// listens parses a line of /proc/net/tcp (proc(5)): the uid of a socket that listens on a port of 127.0.0.1 or of all
// addresses.
func listens(line string, port int) (uid snapshot.UID, ok bool) {
	const local, state, owner = 1, 3, 7
	fields := strings.Fields(line)
	if len(fields) <= owner || fields[state] != "0A" {
		return 0, false
	}
	address, suffix, _ := strings.Cut(fields[local], ":")
	n, err := strconv.ParseUint(suffix, 16, 16)
	id, uidErr := strconv.ParseUint(fields[owner], 10, 32)
	everywhere := strings.Trim(address, "0") == ""
	// in the machine's byte order
	loopback := strings.HasSuffix(address, "0100007F") || strings.HasSuffix(address, "7F000001")
	return snapshot.UID(id), err == nil && uidErr == nil && int(n) == port && (everywhere || loopback)
}

// DefaultPort is Ollama's.
const DefaultPort = 11434

// FreePort is the first free port of an interface from DefaultPort on.
func FreePort(host string) (port int, err error) {
	for port = DefaultPort; port < DefaultPort+100; port++ {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		switch {
		case err == nil:
			return port, listener.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return 0, fmt.Errorf("--host %s: %w", text.Shown(host), err)
		}
	}
	return 0, fmt.Errorf("no port from %d on is free: choose one with --port", DefaultPort)
}

// ShownPort is the port in a table.
func (s *ServedModel) ShownPort() string {
	if s.Port == 0 {
		return "N/A"
	}
	return strconv.Itoa(s.Port)
}

// Name is the environment's name in 1.4.3's format: llm/MODEL/PORT.
func (s *ServedModel) Name() string { return "llm/" + s.Model + "/" + strconv.Itoa(s.Port) }

// Of parses the name of an environment; ok is false if it isn't a model's. Before 1.4.1 it has no port.
func Of(e *snapshot.Environment) (s ServedModel, ok bool) {
	rest, isModel := strings.CutPrefix(e.Config.Name, "llm/")
	slash := strings.LastIndexByte(rest, '/')
	switch {
	case !isModel || rest == "" || slash == 0:
		return s, false
	case slash < 0:
		return ServedModel{Model: rest}, true
	}
	port, err := strconv.ParseUint(rest[slash+1:], 10, 16)
	return ServedModel{Model: rest[:slash], Port: int(port)}, err == nil && port > 0
}
