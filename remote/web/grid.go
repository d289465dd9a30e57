package web

import (
	"html"
	"html/template"
	"strconv"
	"strings"
)

// Grid has the hosts as tiles. There may be thousands, for which a template takes ten times
// as long. All texts go through link or html.EscapeString.
func (p *page) Grid(tiles []tile) template.HTML {
	if len(tiles) == 0 {
		return "<li>no host</li>"
	}
	var b strings.Builder
	for i := range tiles {
		p.writeTile(&b, &tiles[i])
	}
	return template.HTML(b.String()) //nolint:gosec // see above
}

func (p *page) writeTile(b *strings.Builder, t *tile) {
	if t.Failure != nil {
		b.WriteString(`<li class="failed"><div class="top">`)
	} else {
		b.WriteString(`<li><div class="top">`)
	}
	link(b, hostPath(t.Name), hostName(t.Name))
	switch {
	case t.Failure != nil:
		b.WriteString(`<span class="badge bad">failed</span>`)
	case t.Free > 0:
		b.WriteString(`<span class="free">` + strconv.Itoa(t.Free) + ` free</span>`)
	}
	b.WriteString(`</div>`)
	if len(t.GPUs) > 0 {
		p.writeCells(b, t.Host, &t.counts)
	} else {
		b.WriteString(`<span class="cells"><i class="u">?</i></span>`)
	}
	b.WriteString(`<div class="who">`)
	if t.Failure != nil {
		b.WriteString(html.EscapeString(string(t.Failure.Class)) + ", last answer: " + ago(p.Now, t.Seen))
	}
	for _, user := range t.Users {
		link(b, userPath(user), name(user))
		b.WriteByte(' ')
	}
	if t.More > 0 {
		b.WriteString("+" + strconv.Itoa(t.More))
	}
	b.WriteString("</div></li>\n")
}

// link writes a text with a link; only the text if there is no path.
func link(b *strings.Builder, path, text string) {
	if path == "" {
		b.WriteString(html.EscapeString(text))
		return
	}
	b.WriteString(`<a href="` + html.EscapeString(path) + `">` + html.EscapeString(text) + `</a>`)
}
