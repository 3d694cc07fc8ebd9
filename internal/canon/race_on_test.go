//go:build race

package canon

// raceDetector is whether the race detector is on: it makes sync.Pool forget at random, so that allocations cannot be counted.
const raceDetector = true
