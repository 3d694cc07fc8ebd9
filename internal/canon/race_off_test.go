//go:build !race

package canon

const raceDetector = false
