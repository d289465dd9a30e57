package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/seed-3119e985/genv/cmd/genv/shell/docker"
)

// errDaemonJSON means that a daemon.json is not changed.
var errDaemonJSON = errors.New("daemon.json is left as it is")

// daemonRuntime is a runtime in daemon.json.
type daemonRuntime struct {
	Path string   `json:"path"`
	Args []string `json:"runtimeArgs,omitempty"`
}

// The keys of daemon.json (dockerd(8)).
const (
	runtimesKey = "runtimes"
	defaultKey  = "default-runtime"
)

// daemonSetup is what is put into daemon.json.
type daemonSetup struct {
	genv string // the path of this program
	// real is the path of the runtime that it becomes; empty for that of the present
	// default runtime.
	real      string
	lookup    func(name string) (path string, err error)
	isDefault bool // containers have genv's runtime without --runtime genv
}

// merge is a daemon.json with genv's runtime. All that is there stays, in its order. Its
// error wraps errDaemonJSON.
func (d daemonSetup) merge(data []byte) ([]byte, error) {
	file, runtimes, err := readDaemon(data)
	if err != nil {
		return nil, err
	}
	instead, becomes, err := d.replaced(file, runtimes)
	if err != nil {
		return nil, err
	}
	own := daemonRuntime{d.genv, []string{RuntimeCommand, "--real=" + becomes, "--instead-of=" + instead, "--"}}
	err = errors.Join(runtimes.set(docker.Runtime, own), file.set(runtimesKey, runtimes))
	if d.isDefault {
		err = errors.Join(err, file.set(defaultKey, docker.Runtime))
	}
	if err != nil {
		return nil, err
	}
	return file.text()
}

// replaced is the runtime that genv's becomes: the default one, or the one that an earlier
// setup replaced.
func (d daemonSetup) replaced(file, runtimes *members) (name, path string, err error) {
	name = file.string(defaultKey)
	switch name {
	case docker.Runtime:
		name, path = insteadOf(runtimes)
	case "":
		if earlier, _ := insteadOf(runtimes); earlier != "" {
			name = earlier
		}
	}
	if name == "" || name == "io.containerd.runc.v2" {
		name = "runc"
	}
	if d.real != "" {
		return name, d.real, nil
	}
	var other daemonRuntime
	if raw := runtimes.get(name); raw != nil {
		if err := json.Unmarshal(raw, &other); err != nil || other.Path == "" {
			return "", "", fmt.Errorf("%w: its runtime %s has no path that genv could call: give one with --real", errDaemonJSON, name)
		}
		if len(other.Args) > 0 {
			return "", "", fmt.Errorf("%w: its runtime %s has arguments: give a program without with --real", errDaemonJSON, name)
		}
		path = other.Path
	}
	if path == "" {
		path = name
	}
	path, err = d.lookup(path)
	if err != nil {
		return "", "", fmt.Errorf("%w: the runtime %s: %w: give its path with --real", errDaemonJSON, name, err)
	}
	return name, path, nil
}

// insteadOf is what an earlier setup noted in the arguments of genv's runtime.
func insteadOf(runtimes *members) (name, path string) {
	var own daemonRuntime
	if raw := runtimes.get(docker.Runtime); raw == nil || json.Unmarshal(raw, &own) != nil || len(own.Args) == 0 {
		return "", ""
	}
	flags, _ := ownFlags(own.Args[1:])
	return flags["instead-of"], flags["real"]
}

// unmerge is a daemon.json without genv's runtime; the default runtime is the one before.
func unmerge(data []byte) ([]byte, error) {
	file, runtimes, err := readDaemon(data)
	if err != nil {
		return nil, err
	}
	before, _ := insteadOf(runtimes)
	runtimes.remove(docker.Runtime)
	if file.string(defaultKey) == docker.Runtime {
		if before == "" || before == "runc" {
			file.remove(defaultKey)
		} else {
			err = file.set(defaultKey, before)
		}
	}
	if len(runtimes.names) == 0 {
		file.remove(runtimesKey)
	} else {
		err = errors.Join(err, file.set(runtimesKey, runtimes))
	}
	if err != nil {
		return nil, err
	}
	return file.text()
}

func readDaemon(data []byte) (file, runtimes *members, err error) {
	file, runtimes = &members{}, &members{}
	if len(bytes.TrimSpace(data)) > 0 {
		err = json.Unmarshal(data, file)
	}
	if raw := file.get(runtimesKey); err == nil && raw != nil {
		err = json.Unmarshal(raw, runtimes)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: it is not understood: %w", errDaemonJSON, err)
	}
	return file, runtimes, nil
}

// members is a JSON object that keeps its order.
type members struct {
	names  []string
	values []json.RawMessage
}

func (m *members) get(name string) json.RawMessage {
	if i := slices.Index(m.names, name); i >= 0 {
		return m.values[i]
	}
	return nil
}

func (m *members) string(name string) (s string) {
	_ = json.Unmarshal(m.get(name), &s) // what is no string isn't ours
	return s
}

func (m *members) set(name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if i := slices.Index(m.names, name); i >= 0 {
		m.values[i] = raw
		return nil
	}
	m.names, m.values = append(m.names, name), append(m.values, raw)
	return nil
}

func (m *members) remove(name string) {
	if i := slices.Index(m.names, name); i >= 0 {
		m.names, m.values = slices.Delete(m.names, i, i+1), slices.Delete(m.values, i, i+1)
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *members) UnmarshalJSON(data []byte) error {
	reader := json.NewDecoder(bytes.NewReader(data))
	if start, err := reader.Token(); err != nil || start != json.Delim('{') {
		return errors.Join(err, errors.New("an object is expected"))
	}
	for reader.More() {
		name, err := reader.Token()
		var value json.RawMessage
		if err = errors.Join(err, reader.Decode(&value)); err != nil {
			return err
		}
		if m.get(name.(string)) != nil {
			return fmt.Errorf("%s is there twice", name)
		}
		m.names, m.values = append(m.names, name.(string)), append(m.values, value)
	}
	_, err := reader.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// MarshalJSON implements json.Marshaler.
func (m *members) MarshalJSON() ([]byte, error) {
	text := bytes.NewBufferString("{")
	for i, name := range m.names {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text.WriteByte(',')
		}
		text.Write(key)
		text.WriteByte(':')
		text.Write(m.values[i])
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}

// text is the object as a file for people.
func (m *members) text() ([]byte, error) {
	data, err := m.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, data, "", "    "); err != nil {
		return nil, err
	}
	text.WriteByte('\n')
	return text.Bytes(), nil
}
