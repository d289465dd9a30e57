package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Statements are the same for PostgreSQL and SQLite, except for words in braces:
//
//	{fleet}              the condition that a row is of the fleet
//	{fleet,} {id,}       the column for it, and its value
//	{part} {part,} {'',} the same for an empty text that earlier versions filled
//	{fleet integer,}     the column when its table is made
//	{tables named}       where tables are listed, up to the name of one
//	{least} {greatest}

func fileWords() *strings.Replacer {
	return strings.NewReplacer(
		"{fleet}", "true", "{fleet,}", "", "{id,}", "", "{part}", "", "{part,}", "", "{'',}", "", "{least}", "min",
		"{greatest}", "max", "{fleet integer,}", "", "{tables named}", "sqlite_master WHERE name =",
	)
}

func serverWords(fleet int64) *strings.Replacer {
	return strings.NewReplacer(
		"{fleet}", fmt.Sprintf("fleet = %d", fleet), "{fleet,}", "fleet, ", "{id,}", fmt.Sprintf("%d, ", fleet),
		"{part}", " AND part = ''", "{part,}", "part, ", "{'',}", "'', ", "{least}", "least", "{greatest}", "greatest",
		"{fleet integer,}", "fleet integer, ", "{tables named}", "pg_tables WHERE schemaname = 'genv_usage' AND tablename =",
	)
}

type sumTable string

const (
	hourSums sumTable = "hour_sums"
	daySums  sumTable = "day_sums"
)

var sumTables = []sumTable{hourSums, daySums}

// columns are those of usage.Amounts, in the order of Fields. A peak follows.
var columns = []string{
	"attached", "used", "computing", "idle", "unknown", "unmeasured", "memory", "findings", "terminated", "detached",
}

func amountsOf(s *usage.Sum) (values []any) {
	for _, value := range s.Fields() {
		values = append(values, value)
	}
	return append(values, &s.Peak)
}

func columnTypes(of string) string {
	return strings.Join(columns, " "+of+" NOT NULL, ") + " " + of + " NOT NULL, peak " + of + " NOT NULL"
}

func summed() string {
	var list strings.Builder
	for _, column := range columns {
		list.WriteString("CAST(sum(r." + column + ") AS bigint), ") // PostgreSQL's sum is numeric
	}
	return list.String() + "max(r.peak)"
}

// allKinds is a condition for rows r. Naming all kinds makes SQLite use its index by kind.
var allKinds = fmt.Sprintf(" AND r.kind IN (%d, %d, %d, %d)", usage.OfUser, usage.OfHost, usage.OfModel, usage.OfAll)

func (t sumTable) upsert(rows string) string {
	var set strings.Builder
	for _, column := range columns {
		fmt.Fprintf(&set, "%[1]s = %[2]s.%[1]s + excluded.%[1]s, ", column, t)
	}
	return fmt.Sprintf("INSERT INTO %[1]s ({fleet,}kind, start, name, %[2]s, peak) %[3]s ON CONFLICT ({fleet,}kind, "+
		"start, name) DO UPDATE SET %[4]speak = {greatest}(%[1]s.peak, excluded.peak)", t, strings.Join(columns, ", "),
		rows, set.String())
}

const maxRows = 500 // per statement: SQLite takes 32,766 parameters and a text of a megabyte

// valuesList builds a VALUES list, with numbers inline and texts as parameters.
type valuesList struct {
	prefix string // of each row
	text   strings.Builder
	args   []any
}

func listOf(texts []string) *valuesList {
	l := new(valuesList)
	for _, text := range texts {
		l.add(text)
	}
	return l
}

func (l *valuesList) add(fields ...any) {
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

// valid makes a text valid for both databases: UTF-8 without zero bytes.
func valid(name string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
}
