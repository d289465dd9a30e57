package postgres

import (
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/remote/usage"
)

// version is that of the schema. A database of a higher one is left alone.
const version = 1

// schema has everything in a schema of PostgreSQL of its own, so a database may be shared with
// other programs. Moments are in seconds since 1970. A part is always empty: earlier versions had
// several writers at a time.
var schema = fmt.Sprintf(`
CREATE SCHEMA IF NOT EXISTS genv_usage;
CREATE TABLE genv_usage.version (version integer NOT NULL);
INSERT INTO genv_usage.version VALUES (%[1]d);
CREATE TABLE genv_usage.fleets (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
	begun bigint NOT NULL DEFAULT 0, -- from when on usage is kept
	hours bigint NOT NULL DEFAULT 0, -- from when on hours are kept
	days bigint NOT NULL DEFAULT 0, -- up to when the rows of days are written
	nameless bigint NOT NULL DEFAULT 0); -- up to when users have pseudonyms
CREATE TABLE genv_usage.marks (fleet integer, part text, until bigint NOT NULL, ended boolean NOT NULL, PRIMARY KEY (fleet, part));
CREATE TABLE genv_usage.gaps (fleet integer, part text, since bigint, until bigint NOT NULL, PRIMARY KEY (fleet, part, since));
CREATE TABLE genv_usage.entries (fleet integer, id text, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (fleet, id));
CREATE TABLE genv_usage.names (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE genv_usage.devices (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, host integer NOT NULL, device integer NOT NULL, model integer NOT NULL, UNIQUE (host, device, model));
CREATE TABLE genv_usage.hours (fleet integer, start bigint, device integer, "user" integer, eid text, %[2]s, PRIMARY KEY (fleet, start, device, "user", eid));
CREATE TABLE genv_usage.days (fleet integer, start bigint, device integer, "user" integer, eid text, %[2]s, PRIMARY KEY (fleet, start, device, "user", eid));
CREATE TABLE genv_usage.hour_sums (fleet integer, kind integer, start bigint, name integer, %[2]s, peak bigint NOT NULL, PRIMARY KEY (fleet, kind, start, name));
CREATE TABLE genv_usage.day_sums (fleet integer, kind integer, start bigint, name integer, %[2]s, peak bigint NOT NULL, PRIMARY KEY (fleet, kind, start, name));
`, version, strings.Join(columns, " bigint NOT NULL, ")+" bigint NOT NULL")

// columns are those of usage.Amounts, in the order of amountsOf.
var columns = []string{"attached", "used", "computing", "idle", "unknown", "unmeasured", "memory", "findings", "terminated", "detached"}

func amountsOf(a *usage.Amounts) []*int64 {
	return []*int64{&a.Attached, &a.Used, &a.Computing, &a.Idle, &a.Unknown, &a.Unmeasured, &a.Memory, &a.Findings, &a.Terminated, &a.Detached}
}

// sums are the columns of a sum over rows. PostgreSQL's sum of bigint is numeric.
func sums() string {
	var list []string
	for _, column := range columns {
		list = append(list, "sum("+column+")::bigint")
	}
	return strings.Join(list, ", ")
}

// more is what an upsert does with amounts that are there.
func more(table string, further ...string) string {
	var list []string
	for _, column := range columns {
		list = append(list, fmt.Sprintf("%[1]s = %[2]s.%[1]s + excluded.%[1]s", column, table))
	}
	return " ON CONFLICT ON CONSTRAINT " + table + "_pkey DO UPDATE SET " + strings.Join(append(list, further...), ", ")
}

// greatest is what an upsert does with a peak that is there.
func greatest(table string) string {
	return fmt.Sprintf("peak = greatest(%s.peak, excluded.peak)", table)
}

// arrays are parameters from a number on, each an array of a type.
func arrays(first, count int, typed string) string {
	var list []string
	for i := range count {
		list = append(list, fmt.Sprintf("$%d::%s[]", first+i, typed))
	}
	return strings.Join(list, ", ")
}
