// Package enforcement runs the enforcement loop for `genv enforce` and `genv
// remote enforce`: their flags, the policy and its hooks, the audit log, what
// each cycle prints, and reloads. It doesn't know how hosts are reached.
package enforcement
