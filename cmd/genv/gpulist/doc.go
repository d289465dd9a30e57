// Package gpulist selects, sorts and prints lists of GPUs, for `genv gpus` and `genv remote
// gpus`. On a terminal the columns are those that fit; elsewhere nothing is cut.
package gpulist
