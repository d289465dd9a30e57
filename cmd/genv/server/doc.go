// Package server serves HTTP with bounds: clients that are slow, that stop reading, or that
// are many hold up neither the others nor the end, and can't exhaust the program. It is for
// everything that genv serves, on TCP and on unix sockets.
package server
