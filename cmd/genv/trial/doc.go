// Package trial has the flags with which `genv remote enforce` records what it judges.
//
//	open, err := trial.ReadRecord(c, &program, log)
package trial
