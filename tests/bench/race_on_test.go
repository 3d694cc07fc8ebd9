//go:build race

package main

// raceDetector is whether the race detector is on: it allocates on its own account, so that allocations cannot be counted.
const raceDetector = true
