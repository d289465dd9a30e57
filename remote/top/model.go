// Package top is the live view of a fleet on a terminal: `genv remote top`.
//
//	next := top.Follow(client)   // or top.OfFeed, of looks of this program
//	err := top.Run(ctx, top.Options{Next: next, In: os.Stdin, Out: os.Stdout, Now: time.Now})
//
// Update and View do no I/O. Rows are selected by identity, such as a process's host, PID and start time: when one is
// gone, nothing is selected until a key moves the selection. Plain prints lines instead, for screen readers and logs.
//
// The package asks no host and changes nothing: actions are requests to the controller.
package top

import (
	"context"
	"io"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// Model is the state of the view.
type Model struct {
	options Options
	context context.Context //nolint:containedctx // for commands, which take no argument
	painter draw.Painter

	width, height int
	now           time.Time

	scene   *scene // nil before the first update
	origin  string
	err     error // why there is no newer update
	paused  bool
	waiting *Update // arrived during the pause

	tab     tabID
	scope   rowID    // the row that was entered
	undo    []func() // of each Enter
	cursors [tabCount]cursor
	tagged  map[rowID]bool
	filter  Filter
	rows    []tabRow // of the tab, filtered and sorted

	mode    mode
	input   input
	request []operator.Action // to be completed and confirmed; may be nil
	details []string
	message string
}

type mode int

const (
	browse  mode = iota
	typing       // a filter, or missing parts of a request
	confirm      // a request
	read         // details or help, until a key is pressed
)

type cursor struct {
	id       rowID
	chosen   bool // a row was selected
	gone     bool // it no longer exists
	at       int  // its present or last place
	top      int  // first visible row
	sort     int  // 1 is the first column; 0 is the fleet's order
	backward bool
}

func newModel(ctx context.Context, options Options) *Model {
	return &Model{
		options: options, context: ctx, painter: draw.Painter{Colour: options.Colour}, now: options.Now(),
		filter: options.Filter, tagged: make(map[rowID]bool),
	}
}

// Init implements tea.Model.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.next(), tick()) }

func (m *Model) next() tea.Cmd {
	return func() tea.Msg {
		update, err := m.options.Next(m.context)
		return func() tea.Cmd {
			m.take(&update, err)
			return m.next()
		}
	}
}

func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return t }) }

// Update implements tea.Model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.now = m.options.Now()
	defer m.scroll() // a message takes space from the rows
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.ColorProfileMsg:
		m.painter.Many = msg.Profile >= colorprofile.ANSI256
	case time.Time:
		return m, tick()
	case func() tea.Cmd: // result of a command
		return m, msg()
	case tea.PasteMsg:
		if m.mode == typing {
			m.input.add(msg.Content)
		}
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

func (m *Model) take(u *Update, err error) {
	m.err = err
	switch {
	case err != nil || u.Fleet == nil:
	case m.paused:
		if m.waiting != nil {
			u.Events = withEvents(m.waiting.Events, u.Events)
		}
		m.waiting = u
	default:
		m.show(u)
	}
}

func (m *Model) show(u *Update) {
	var kept []live.FleetEvent
	if m.scene != nil && m.scene.Run == u.Fleet.Run { // another controller counts from 1
		kept = m.scene.events
	}
	m.scene, m.origin = newScene(u.Fleet, withEvents(kept, u.Events), m.options.Now), u.Origin
	m.arrange()
	m.forgetTags()
}

func (m *Model) arrange() {
	if m.scene == nil {
		return
	}
	c := m.cursor()
	rows := m.options.only(m.scene.rows(m.tab))
	rows = slices.DeleteFunc(rows, func(r tabRow) bool { return !r.of(&m.scope) || !m.filter.matches(&r) })
	columns := m.scene.columns(m.tab)
	if c.sort > len(columns) { // columns about guards may disappear
		c.sort = 0
	}
	if c.sort > 0 {
		compare := columns[c.sort-1].compare
		slices.SortStableFunc(rows, func(a, b tabRow) int {
			if c.backward {
				a, b = b, a
			}
			return compare(&a, &b)
		})
	}
	m.rows = rows
	m.find()
}

func (m *Model) find() {
	c := m.cursor()
	if !c.chosen {
		m.choose(0)
		return
	}
	at := slices.IndexFunc(m.rows, func(r tabRow) bool { return r.id == c.id })
	if at >= 0 {
		c.at, c.gone = at, false
	} else if !c.gone {
		c.gone = true
		m.selectedOrSay()
	}
	m.scroll()
}

func (m *Model) choose(at int) {
	c := m.cursor()
	if len(m.rows) == 0 {
		return
	}
	c.at = min(max(at, 0), len(m.rows)-1)
	c.id, c.chosen, c.gone = m.rows[c.at].id, true, false
	m.scroll()
}

func (m *Model) scroll() {
	c, page := m.cursor(), m.page()
	c.top = min(c.top, c.at)
	c.top = max(c.top, c.at-page+1)
	c.top = max(0, min(c.top, len(m.rows)-page))
}

func (m *Model) cursor() *cursor { return &m.cursors[m.tab] }

func (m *Model) selected() *tabRow {
	c := m.cursor()
	if !c.chosen || c.gone || c.at >= len(m.rows) || m.rows[c.at].id != c.id {
		return nil
	}
	return &m.rows[c.at]
}

func (m *Model) forgetTags() {
	for id := range m.tagged {
		if !slices.ContainsFunc(m.scene.rows(id.tab), func(r tabRow) bool { return r.id == id }) {
			delete(m.tagged, id)
			m.message = id.String() + " was tagged and isn't here any more"
		}
	}
}

// Options of a view.
type Options struct {
	Next   Next
	In     io.Reader
	Out    io.Writer // a terminal, for Run
	Now    func() time.Time
	Colour bool
	Filter Filter // initial
	// Hosts limits what is shown; nil: all. Users are counted on all hosts.
	Hosts map[snapshot.Hostname]bool
	SSH   func(host string) []string // arguments of ssh before a host
	// Act sends a request to the controller. If it is nil, NoAct says why, and the next step.
	Act   func(context.Context, *operator.Action) (operator.Answer, error)
	NoAct string
	// Failures, if set, gets newly failed hosts before Plain prints them.
	Failures func(failures []remote.Failure, total int)
}

// Run shows the fleet until the user quits or ctx ends.
func Run(ctx context.Context, options Options) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel() // ends the wait for the next update
	program := tea.NewProgram(newModel(within, options), tea.WithInput(options.In), tea.WithOutput(options.Out),
		tea.WithoutSignalHandler())
	stop := context.AfterFunc(ctx, program.Quit)
	defer stop()
	_, err := program.Run()
	return err
}

func (o *Options) only(rows []tabRow) []tabRow {
	if o.Hosts == nil {
		return rows
	}
	return slices.DeleteFunc(rows, func(r tabRow) bool { return r.id.host != "" && !o.Hosts[r.id.host] })
}
