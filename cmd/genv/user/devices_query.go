package user

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// deviceQueries are the words of `genv devices query --query` and what each
// prints, in 1.4.3's way: lists with spaces between, and none within.
var deviceQueries = map[string]func(*snapshot.Device) string{
	"index":        func(d *snapshot.Device) string { return d.Index.String() },
	"total_memory": func(d *snapshot.Device) string { return d.TotalMemory.String() },
	"eids": func(d *snapshot.Device) string {
		return eachAttachment(d, func(a *snapshot.Attachment) string { return string(a.EID) })
	},
	"attachments": func(d *snapshot.Device) string {
		return eachAttachment(d, func(a *snapshot.Attachment) string {
			return fmt.Sprintf("%s+%s+%s", a.EID, a.GPUMemory, strings.ReplaceAll(a.Time.String(), " ", "_"))
		})
	},
}

func deviceQueryNames() []string { return slices.Sorted(maps.Keys(deviceQueries)) }

func eachAttachment(d *snapshot.Device, text func(*snapshot.Attachment) string) string {
	words := make([]string, len(d.Attachments))
	for i := range d.Attachments {
		words[i] = text(&d.Attachments[i])
	}
	return strings.Join(words, " ")
}

func (p *program) devicesQuery(c *cli.Context) error {
	if err := command.RefuseArguments(c); err != nil {
		return err
	}
	queries := c.StringSlice("query")
	for _, q := range queries {
		if deviceQueries[q] == nil {
			return command.Usage("--query %q: write one of %s", q, strings.Join(deviceQueryNames(), " "))
		}
	}
	if len(queries) == 0 {
		return command.Usage("--query is missing: write one or more of %s", strings.Join(deviceQueryNames(), " "))
	}
	list, err := indices(c)
	if err != nil {
		return err
	}
	format, err := command.FormatOf(c, "tui", "csv", "json")
	if err != nil {
		return err
	}
	books, err := p.deviceBooks(c)
	if err != nil {
		return err
	}
	if err := keepDevices(&books, list); err != nil {
		return err
	}
	if format == "json" {
		return render.WriteJSON(p.Out, localDevicesOf(&books))
	}
	t := &render.Table{NoHeader: true}
	for i := range books.Devices {
		row := make([]string, len(queries))
		for j, q := range queries {
			row[j] = deviceQueries[q](&books.Devices[i])
		}
		t.Add(row...)
	}
	return t.WriteCSV(p.Out)
}

// keepDevices keeps the devices that are on a list, if there is one.
func keepDevices(b *state.Files, list []snapshot.DeviceIndex) error {
	if list == nil {
		return nil
	}
	var kept []snapshot.Device
	for _, index := range list {
		d := b.Device(index)
		if d == nil {
			return &state.NoDeviceError{Index: index, Total: len(b.Devices)}
		}
		kept = append(kept, *d)
	}
	b.Devices = kept
	return nil
}
