package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Statements are those of PostgreSQL and SQLite alike. What they write differently is in braces:
//
//	{fleet}        the condition that a row is of the fleet
//	{fleet,}       the column for it, and {id,} its value
//	{part} {part,} {'',} the same for an empty text that earlier versions filled
//	{least}, {greatest}

// fileWords are those of SQLite.
var fileWords = strings.NewReplacer(
	"{fleet}", "true", "{fleet,}", "", "{id,}", "", "{part}", "", "{part,}", "", "{'',}", "", "{least}", "min", "{greatest}", "max",
)

// serverWords are those of PostgreSQL.
func serverWords(fleet int64) *strings.Replacer {
	return strings.NewReplacer(
		"{fleet}", fmt.Sprintf("fleet = %d", fleet), "{fleet,}", "fleet, ", "{id,}", fmt.Sprintf("%d, ", fleet),
		"{part}", " AND part = ''", "{part,}", "part, ", "{'',}", "'', ", "{least}", "least", "{greatest}", "greatest",
	)
}

// table is one with amounts. Names are those of users, hosts and models, by their ids.
type table struct {
	name string
	keys string // its columns, after the fleet
	user string // the column with a user
	sums bool   // of a kind, with a peak
}

var (
	hourRows = table{"hours", `start, device, "user", eid`, `"user"`, false}
	dayRows  = table{"days", `start, device, "user", eid`, `"user"`, false}
	hourSums = table{"hour_sums", "kind, start, name", "name", true}
	daySums  = table{"day_sums", "kind, start, name", "name", true}
	// monthSums are there so that a report of a year doesn't read as many rows as there are days.
	monthSums = table{"month_sums", "kind, start, name", "name", true}
)

// tables are those of a database.
func (s *Store) tables() []*table {
	all := []*table{&hourRows, &dayRows, &hourSums, &daySums}
	if s.months {
		all = append(all, &monthSums)
	}
	return all
}

// columns are those of usage.Amounts, in the order of amountsOf.
var columns = []string{"attached", "used", "computing", "idle", "unknown", "unmeasured", "memory", "findings", "terminated", "detached"}

func amountsOf(a *usage.Amounts) []any {
	return []any{&a.Attached, &a.Used, &a.Computing, &a.Idle, &a.Unknown, &a.Unmeasured, &a.Memory, &a.Findings, &a.Terminated, &a.Detached}
}

// columnTypes declare the columns with amounts.
func columnTypes(of string) string {
	return strings.Join(columns, " "+of+" NOT NULL, ") + " " + of + " NOT NULL"
}

// summed are the amounts of several rows r.
func (t *table) summed() string {
	var list strings.Builder
	for _, column := range columns {
		list.WriteString(", CAST(sum(r." + column + ") AS bigint)") // PostgreSQL's sum is numeric
	}
	if t.sums {
		list.WriteString(", max(r.peak)")
	}
	return list.String()[2:]
}

// kind is a condition for rows of some kinds. All of them are named so that SQLite uses its index by kind.
func (t *table) kind(kinds ...usage.Kind) string {
	if !t.sums {
		return ""
	}
	return " AND r.kind IN (" + strings.ReplaceAll(strings.Trim(fmt.Sprintf("%d", kinds), "[]"), " ", ", ") + ")"
}

func allKinds() []usage.Kind {
	return []usage.Kind{usage.ByUser, usage.ByHost, usage.ByModel, usage.OfAll}
}

// upsert adds rows with keys and amounts to those that the table has.
func (t *table) upsert(rows string) string {
	added := columns
	var set strings.Builder
	for _, column := range columns {
		fmt.Fprintf(&set, ", %[1]s = %[2]s.%[1]s + excluded.%[1]s", column, t.name)
	}
	if t.sums {
		added = append(added[:len(added):len(added)], "peak")
		fmt.Fprintf(&set, ", peak = {greatest}(%s.peak, excluded.peak)", t.name)
	}
	return fmt.Sprintf("INSERT INTO %s ({fleet,}%s, %s) %s ON CONFLICT ({fleet,}%s) DO UPDATE SET %s",
		t.name, t.keys, strings.Join(added, ", "), rows, t.keys, set.String()[2:])
}

// selected are sums of rows r, for upsert. values are those for the keys, separated as these are; rows can't be
// grouped by one that is a number.
func (t *table) selected(values, from string) string {
	var by []string
	for value := range strings.SplitSeq(values, ", ") {
		if strings.Contains(value, ".") {
			by = append(by, value)
		}
	}
	return fmt.Sprintf("SELECT {id,}%s, %s FROM %s GROUP BY %s", values, t.summed(), from, strings.Join(by, ", "))
}

// maxRows is how many rows a statement has. SQLite takes 32,766 parameters and a text of a megabyte.
const maxRows = 500

// list is a list of rows in a statement, as VALUES: numbers as they are, whatever type their columns have, and texts as
// parameters.
type list struct {
	prefix string // of each row
	text   strings.Builder
	args   []any
}

func listOf[Row any](rows []Row, fields func(*Row) []any) *list {
	l := new(list)
	for i := range rows {
		l.add(fields(&rows[i])...)
	}
	return l
}

// add adds a row: numbers, texts, and pointers to them.
func (l *list) add(fields ...any) {
	before := ", ("
	if l.text.Len() == 0 {
		before = "VALUES ("
	}
	before += l.prefix
	for _, field := range fields {
		l.text.WriteString(before)
		before = ", "
		switch field := field.(type) {
		case int64:
			l.text.WriteString(strconv.FormatInt(field, 10))
		case *int64:
			l.text.WriteString(strconv.FormatInt(*field, 10))
		default:
			l.args = append(l.args, field)
			l.text.WriteString("$" + strconv.Itoa(len(l.args)))
		}
	}
	l.text.WriteByte(')')
}

// valid is a text as both databases take it: UTF-8 without zero bytes.
func valid(name string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
}
