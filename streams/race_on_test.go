//go:build race

package streams

// raceDetector makes the longest tables of failures shorter: everything is some ten times slower under it.
const raceDetector = true
