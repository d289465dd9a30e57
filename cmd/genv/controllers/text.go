package controllers

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// write prints the document for people.
func (d *Document) write(w io.Writer, output render.Output) error {
	if d.Election != nil {
		if err := d.writeElection(w, output); err != nil {
			return err
		}
	}
	if len(d.Hosts) > 0 {
		if d.Election != nil {
			_, _ = fmt.Fprintln(w)
		}
		if err := d.writeHosts(w, output); err != nil {
			return err
		}
	}
	var b strings.Builder
	for _, p := range d.Problems {
		fmt.Fprintf(&b, "\n%s\nnext: %s\n", text.Printable(p.Text), text.Printable(p.Next))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (d *Document) writeElection(w io.Writer, output render.Output) error {
	e := d.Election
	head := "Election " + text.Printable(e.Key) + ": no controller leads\n"
	switch {
	case len(e.Controllers) == 0:
		_, err := io.WriteString(w, head+"No controller takes part in it.\n")
		return err
	case e.Leads:
		head = fmt.Sprintf("Election %s: epoch %d, since %s\n", text.Printable(e.Key), e.Epoch, timeOf(e.Since))
	}
	if _, err := io.WriteString(w, head+"\n"); err != nil {
		return err
	}
	t := output.Table(render.Col("CONTROLLER", 30), render.Col("ROLE", 8), render.Col("RUNS SINCE", 20), render.Col("VERSION", 10), render.Col("HOSTS", 6), render.Col("LAST CYCLE", 0))
	for i := range e.Controllers {
		t.Add(d.line(&e.Controllers[i])...)
	}
	if err := t.Write(w); err != nil || !e.Leads {
		return err
	}
	memory := "The leader has written no memory to etcd yet: a controller that takes over would start times again.\n"
	if !e.Memory.IsZero() {
		memory = "The memory of the leader was written to etcd " + d.ago(e.Memory) + ".\n"
	}
	_, err := io.WriteString(w, "\n"+memory)
	return err
}

func (d *Document) line(c *Controller) []string {
	return []string{text.Cut(text.Printable(c.Name), maxShown), string(c.Role), timeOf(c.Since), text.Cut(text.Printable(c.Version), maxShown), hostsOf(c), d.ago(c.Cycle)}
}

// hostsOf is how many hosts a controller has, and how many of them answered, if that is known.
func hostsOf(c *Controller) string {
	if c.Answered == nil {
		return number(c.Hosts)
	}
	return fmt.Sprintf("%d/%d", *c.Answered, c.Hosts)
}

func (d *Document) writeHosts(w io.Writer, output render.Output) error {
	t := output.Table(render.Col("HOST", 20), render.Col("CONTROLLER", 30), render.Col("EPOCH", 8), render.Col("SOURCE", 7), render.Col("SINCE", 20), render.Col("STATE", 0))
	for i := range d.Hosts {
		h := &d.Hosts[i]
		state := string(h.State)
		switch {
		case h.State == cannot:
			state = "can't refuse"
		case h.State == acts && !h.Agrees:
			state = "acts!"
		case h.State == acts && h.Kind == fence.KindEtcd && d.Etcd.failed():
			state = "may act" // or it can't reach etcd, too, and only watches
		}
		t.Add(h.Host, text.Cut(text.Printable(h.Controller), maxShown), number(h.Epoch), h.Kind, timeOf(h.Since), state)
	}
	return t.Write(w)
}

func number[N int | uint64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

func timeOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// ago is how long ago something was; another clock may be ahead.
func (d *Document) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return render.Age(max(d.Time.Sub(t), 0))
}
