package remote

import "strings"

// Failure is a host that failed, as JSON shows it.
type Failure struct {
	Host     string `json:"host"`
	Class    Class  `json:"class"`
	Error    string `json:"error"`
	NextStep string `json:"next_step"`
}

// FailureOf describes the error of a host.
func FailureOf(host string, err error) Failure {
	class := ClassOf(err)
	text := strings.TrimPrefix(err.Error(), host+": ")
	return Failure{Host: host, Class: class, Error: text, NextStep: NextStepOf(err)}
}
